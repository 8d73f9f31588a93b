# exit: 0
# stdout: 16.6 *passed*
# Two projections of the query in place of one are judged like the others.
sed 's/"q_lora_rank": null/"q_lora_rank": 32/' model/config.json >model/lora.json
mv model/lora.json model/config.json
sed 's/\( *- "model.layers.\*.self_attn.q\)_proj"/\1_a_proj"\n\1_b_proj"/' base.yaml >lora-base.yaml
sed 's/base.yaml/lora-base.yaml/' train.yaml >lora.yaml
octet verify --config lora.yaml --case mxfp8 --quick --ranks 1 --out verify
