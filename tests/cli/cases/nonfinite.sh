# exit: 5
# stderr: octet: training stops: 2 steps in a row had a non-finite gradient norm*(training.max_consecutive_skips, first in model.embed_tokens.weight)
OCTET_FAULT=trainer.gradient:2,trainer.gradient:3 octet train train.yaml training.max_consecutive_skips=2 --run-dir run || { status=$?; [ -z "$(ls run/checkpoints)" ]; exit "$status"; }
