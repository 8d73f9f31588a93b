# exit: 0
# Every way to write an override; the later one wins.
octet train --job.config_file train.toml --print-config --training.steps 7 --training.seq-len=16 \
    optimizer.lr=2e-5 --checkpoint.enable --checkpoint.no_initial_load_model_only \
    --checkpoint.interval 3 --checkpoint.interval 2 --metrics.log-freq 5 --octet.trace true \
    --debug.deterministic false >out 2>err
grep -q '^  train_iters: 7$' out
grep -q '^  seq_length: 16$' out
grep -q '^  lr: 2e-05$' out
grep -q '^  save_steps: 2$' out
grep -q '^  every: 5$' out
grep -q '^trace: true$' out
grep -q '^override training.steps=7 replaces integer 4 (train.toml:7)$' err
grep -q '^override checkpoint.enable=true replaces the default false$' err
grep -q '^override checkpoint.initial_load_model_only=false replaces the default true$' err
octet train train.toml --print-config --profiling.profile_ranks 0,1 \
    --parallelism.module_fqns_per_model_part a,b >out 2>err
grep -q '^override profiling.profile_ranks=0,1 replaces the default \[-1\]$' err
grep -q '^octet: warning: parallelism.module_fqns_per_model_part has no effect: ' err
octet train train.toml --octet.trace --octet.fsdp_config.no_prefetch --print-config 2>/dev/null >out
grep -q '^trace: true$' out
grep -q '^  prefetch: false$' out
octet train train.toml --print-config --model.hf_config "a b,c" 2>/dev/null | grep -q '"a b,c"'
