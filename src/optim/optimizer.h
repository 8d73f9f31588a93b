/* AdamW on FP32 masters: the owner of the authoritative weights and of the moments. */
#ifndef OCT_OPTIM_OPTIMIZER_H
#define OCT_OPTIM_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"
#include "comm/comm.h"
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
 * (one rank, or a replicated parameter: all; perhaps none). All FP32 [numel], owned by the
 * optimizer. */
typedef struct oct_optim_slot {
    oct_param *param;
    int64_t row_begin, rows;
    int64_t numel;  /* elements of the owned rows */
    float *master;  /* the authority */
    float *exp_avg; /* NULL, like exp_avg_sq, if the parameter does not require a gradient */
    float *exp_avg_sq;
    oct_tensor value; /* compute copy of the owned rows: the master itself or BF16 memory of the
                         optimizer; data NULL before attach_values and for a parameter with
                         `storage` */
    int64_t partial_begin; /* first of its own partials of the gradient norm */
} oct_optim_slot;

/* Partials of one slot that one rank sends, all_partials[begin .. begin+count-1]. Of a replicated
 * parameter only those of rank 0 are added; all must be finite. */
typedef struct oct_norm_run {
    int64_t slot, begin, count;
    bool is_added;
} oct_norm_run;

typedef struct oct_optimizer {
    oct_adamw_config config;
    oct_comm *comm;        /* borrowed; NULL: one rank */
    oct_ledger *ledger;    /* borrowed; counts what the optimizer holds, or NULL */
    oct_optim_slot *slots; /* in tree order */
    int64_t slot_count;
    int64_t step;          /* successful updates so far */
    double *all_partials;  /* workspace of the norm: the partials of every rank, one rank's after
                              another's; a partial per owned dim-0 index of every slot */
    double *partials;      /* those of this rank, in place */
    int64_t partial_count; /* of this rank */
    size_t *partial_bytes; /* that each rank sends */
    oct_norm_run *runs;    /* every partial, those that are added in ascending global order */
    int64_t run_count;
} oct_optimizer;

/* Takes param->init of every parameter of the tree, FP32 of the rows that param->row_begin and rows
 * give this rank, as its master (the pointer moves; param->init becomes NULL; freed with free())
 * and allocates zeroed moments. Never reads value or storage: the first master is the FP32 initial
 * value itself. comm and ledger may be NULL; both outlive the optimizer. Collective: the rows of
 * all ranks are compared. Errors: OCT_E_API naming a parameter without init, or one whose ranks do
 * not own its rows each once in ascending order, or all of them where it is replicated;
 * OCT_E_NOMEM; those of another rank. The tree is then unchanged. */
oct_status oct_optimizer_create(oct_module_tree *tree, const oct_adamw_config *config,
                                oct_comm *comm, oct_ledger *ledger, oct_optimizer **out,
                                oct_err *err) OCT_MUST_CHECK;

/* Frees masters, moments and compute copies and clears param->value of every parameter that got
 * one: before the tree is released. NULL is fine. Not collective. */
void oct_optimizer_destroy(oct_optimizer *optimizer);

/* Gives every parameter that has no `storage` a compute copy of its owned rows, slot->value: with
 * act_dtype F32 or keep_float32 the master itself, otherwise BF16 memory that the optimizer owns.
 * It becomes param->value, which others may point elsewhere from then on: neither param->value nor
 * param->storage is read again. Then refreshes. Call after replacement, once. Not collective. */
oct_status oct_optimizer_attach_values(oct_optimizer *optimizer, const oct_exec *exec,
                                       oct_dtype act_dtype, oct_err *err) OCT_MUST_CHECK;

/* slot->value = BF16(master), nearest even, for every parameter that got one; after a successful
 * update and after loading, never else. Parameters whose value is the master need nothing. Not
 * collective. */
oct_status oct_optimizer_refresh_values(oct_optimizer *optimizer, const oct_exec *exec,
                                        oct_err *err) OCT_MUST_CHECK;

/* The global L2 norm of all gradients before clipping. Sum of squares in FP64: one partial per
 * dim-0 index (per element for 1-D), partials added in ascending order, parameters in tree order,
 * those of a replicated parameter once: the bits do not depend on threads nor on shards, and every
 * rank has the same. */
typedef struct oct_grad_norm {
    double norm;               /* NaN or Inf if not finite */
    bool finite;               /* decided from the gradients, before anything uses the norm */
    const char *nonfinite_fqn; /* first parameter with a non-finite gradient element, or NULL */
} oct_grad_norm;

/* Reads param->grad, the owned rows, of every slot that requires one. Makes no heap call.
 * Collective: each rank computes the partials of its rows and every rank adds all of them. Errors:
 * OCT_E_API naming a parameter with rows here and without a finished gradient (grad NULL or
 * grad_started false), on every rank if on one. */
oct_status oct_optimizer_grad_norm(oct_optimizer *optimizer, const oct_exec *exec,
                                   oct_grad_norm *out, oct_err *err) OCT_MUST_CHECK;

/* min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0. norm must be finite. */
float oct_clip_factor(double norm, double max_norm);

/* One AdamW update of every master with rate config.lr * lr_factor and the gradients scaled by the
 * clip factor. If `norm` is not finite nothing at all changes and *updated is false; a caller then
 * refreshes nothing. Otherwise step goes up by one. Does not refresh values. Bias corrections are
 * 1 - oct_powi(beta, step) in double. Not collective: each rank updates its rows, with a clip
 * factor and a rate that are the same on all. */
oct_status oct_optimizer_update(oct_optimizer *optimizer, const oct_exec *exec,
                                const oct_grad_norm *norm, double lr_factor, bool *updated,
                                oct_err *err) OCT_MUST_CHECK;

/* Marks every gradient accumulator as empty (the next micro-batch stores); refreshes nothing. */
void oct_optimizer_zero_grad(oct_optimizer *optimizer);

#endif
