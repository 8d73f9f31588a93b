/* Which keys of a checkpoint hold the tensors of a model. octet's own are fixed; programs on
 * PyTorch put their state dicts below names of their choice and, before transformers 5, keep the
 * experts of DeepSeek-V3 apart. */
#ifndef OCT_CHECKPOINT_TORCH_KEYS_H
#define OCT_CHECKPOINT_TORCH_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"
#include "module/module.h"

enum { OCT_TORCH_KEY_BYTES = 1024 };

typedef struct oct_torch_keys {
    const oct_checkpoint *checkpoint;  /* borrowed */
    bool is_foreign;                   /* no COMMIT.json: PyTorch wrote it */
    char weights[OCT_TORCH_KEY_BYTES]; /* before the FQN of a weight or buffer: "", "model.", ... */
    char state[OCT_TORCH_KEY_BYTES];   /* before that of its optimizer state: "optimizer.state." */
} oct_torch_keys;

/* Looks for the keys that end with `fqn`, a parameter or buffer of the model, and with
 * `fqn`.exp_avg; what stands before it there stands before all. A key that is the FQN itself goes
 * first. Errors: OCT_E_CORRUPT where two such keys exist (both are named). */
oct_status oct_torch_keys_find(const oct_checkpoint *checkpoint, const char *fqn,
                               oct_torch_keys *out, oct_err *err) OCT_MUST_CHECK;

/* true if the checkpoint has this tensor of the parameter: `name` is NULL for the weight, "master",
 * "exp_avg", ... for its optimizer state. */
bool oct_torch_keys_has(const oct_torch_keys *keys, const oct_param *param, const char *name);

/* Rows row_begin .. row_begin+rows-1 of dim 0 as FP32. A stacked parameter of experts, gate_up_proj
 * [E,2F,H] or down_proj [E,H,F], is put together from experts.N.{gate,up,down}_proj.weight if the
 * checkpoint has those. State of octet's own checkpoints has to be FP32. Errors: as
 * oct_checkpoint_read_rows; OCT_E_CORRUPT for optimizer state by number instead of name. */
oct_status oct_torch_keys_read(const oct_torch_keys *keys, const oct_param *param, const char *name,
                               int64_t row_begin, int64_t rows, float *out,
                               oct_err *err) OCT_MUST_CHECK;

/* The step count of the parameter, that of its experts if these are apart: all have to be equal to
 * *step unless that is -1, and whole numbers. */
oct_status oct_torch_keys_read_step(const oct_torch_keys *keys, const oct_param *param,
                                    int64_t *step, oct_err *err) OCT_MUST_CHECK;

#endif
