/* AdamW on FP32 masters: the owner of the authoritative weights and of the moments. */
#ifndef OCT_OPTIM_OPTIMIZER_H
#define OCT_OPTIM_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "kernels/exec.h"
#include "module/module.h"

typedef struct oct_adamw_config {
    double lr; /* before the schedule's factor */
    double beta1, beta2, eps, weight_decay;
    double max_grad_norm; /* 0 = no clipping */
} oct_adamw_config;

oct_adamw_config oct_adamw_config_from(const oct_config *config);

/* State of one parameter: the rows row_begin .. row_begin+rows-1 of its dim 0 that this rank owns
 * (one rank: all). All FP32 [numel], owned by the optimizer. */
typedef struct oct_optim_slot {
    oct_param *param;
    int64_t row_begin, rows;
    int64_t numel;  /* elements of the owned rows */
    float *master;  /* the authority */
    float *exp_avg; /* NULL, like exp_avg_sq, if the parameter does not require a gradient */
    float *exp_avg_sq;
    void *value;           /* BF16 memory behind param->value, or NULL */
    int64_t partial_begin; /* first of its partials of the gradient norm */
} oct_optim_slot;

typedef struct oct_optimizer {
    oct_adamw_config config;
    oct_optim_slot *slots; /* in tree order */
    int64_t slot_count;
    int64_t step;     /* successful updates so far */
    double *partials; /* workspace of the norm, one per dim-0 index of every slot */
    int64_t partial_count;
} oct_optimizer;

/* Takes param->init of every parameter of the tree as its master (the pointer moves; param->init
 * becomes NULL; freed with free()) and allocates zeroed moments. Never reads value or storage: the
 * first master is the FP32 initial value itself. Errors: OCT_E_API naming a parameter without init
 * (the tree is unchanged), OCT_E_NOMEM. */
oct_status oct_optimizer_create(oct_module_tree *tree, const oct_adamw_config *config,
                                oct_optimizer **out, oct_err *err) OCT_MUST_CHECK;

/* Frees masters and moments and clears the values of parameters that lived here: before the tree is
 * released. NULL is fine. */
void oct_optimizer_destroy(oct_optimizer *optimizer);

/* Gives every parameter that has no `storage` its compute copy: with act_dtype F32 or keep_float32
 * the value is the master itself, otherwise BF16 memory that the optimizer owns. Then refreshes.
 * Call after replacement, once. */
oct_status oct_optimizer_attach_values(oct_optimizer *optimizer, const oct_exec *exec,
                                       oct_dtype act_dtype, oct_err *err) OCT_MUST_CHECK;

/* value = BF16(master), nearest even, for every parameter without `storage`; after a successful
 * update and after loading, never else. Parameters whose value is the master need nothing. */
oct_status oct_optimizer_refresh_values(oct_optimizer *optimizer, const oct_exec *exec,
                                        oct_err *err) OCT_MUST_CHECK;

/* The global L2 norm of all gradients before clipping. Sum of squares in FP64: one partial per
 * dim-0 index (per element for 1-D), partials added in ascending order, parameters in tree order:
 * the bits do not depend on threads, and later not on shards. */
typedef struct oct_grad_norm {
    double norm;               /* NaN or Inf if not finite */
    bool finite;               /* decided from the gradients, before anything uses the norm */
    const char *nonfinite_fqn; /* first parameter with a non-finite gradient element, or NULL */
} oct_grad_norm;

/* Reads param->grad of every slot that requires one. Errors: OCT_E_API naming a parameter without
 * a finished gradient (grad NULL or grad_started false). */
oct_status oct_optimizer_grad_norm(oct_optimizer *optimizer, const oct_exec *exec,
                                   oct_grad_norm *out, oct_err *err) OCT_MUST_CHECK;

/* min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0. norm must be finite. */
float oct_clip_factor(double norm, double max_norm);

/* One AdamW update of every master with rate config.lr * lr_factor and the gradients scaled by the
 * clip factor. If `norm` is not finite nothing at all changes and *updated is false; a caller then
 * refreshes nothing. Otherwise step goes up by one. Does not refresh values. Bias corrections are
 * 1 - oct_powi(beta, step) in double. */
oct_status oct_optimizer_update(oct_optimizer *optimizer, const oct_exec *exec,
                                const oct_grad_norm *norm, double lr_factor, bool *updated,
                                oct_err *err) OCT_MUST_CHECK;

/* Marks every gradient accumulator as empty (the next micro-batch stores); refreshes nothing. */
void oct_optimizer_zero_grad(oct_optimizer *optimizer);

#endif
