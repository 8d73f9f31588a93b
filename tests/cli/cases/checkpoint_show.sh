# exit: 0
# stdout: step 4, written by 1 ranks*
# stdout: optimizer.state.lm_head.weight.exp_avg * float32 *257 x 64
# stdout: train_state.step *
octet train train.yaml --run-dir run >/dev/null
octet checkpoint show run/checkpoints/step-4
