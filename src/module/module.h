/* The module tree: names, types, parameters, and the tables through which modules compute. A tree
 * is built on meta (shapes only), then materialised; a replacement changes a module's type and
 * table but never its FQN, parameters or buffers. */
#ifndef OCT_MODULE_MODULE_H
#define OCT_MODULE_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "tensor/tensor.h"

/* One type of module. Identity is the address; `base` is its parent type or NULL. */
typedef struct oct_module_type {
    const char *name; /* "torch.nn.Linear", ... */
    const struct oct_module_type *base;
    const void *ops; /* table of this kind of module: oct_linear_ops, oct_experts_ops, or NULL */
} oct_module_type;

/* What a lifecycle attaches to a parameter whose compute form is not a plain tensor. Opaque here.
 */
typedef struct oct_weight_storage oct_weight_storage;

/* One parameter. Shared by every module that names it (tied weights). The tree owns the struct;
 * `init` belongs to the tree until lifecycle takes it; value, grad and storage belong to
 * lifecycle.
 *
 * Of several ranks each owns rows row_begin .. row_begin+rows-1 of dim 0 (experts of a stacked
 * weight): init and grad hold these rows only. value and storage are those of the whole parameter
 * and there only while its unit is gathered. A replicated parameter is owned whole by every rank.
 */
typedef struct oct_param {
    char *fqn; /* of its first owner: the checkpoint key */
    int ndim;
    int64_t shape[3];
    int64_t row_begin, rows; /* of dim 0, owned by this rank; all of them with one rank */
    bool replicated;         /* several ranks: every rank holds it whole */
    bool requires_grad;
    bool keep_float32; /* router weight: computed with in FP32 whatever the activation dtype is */
    float *init;       /* FP32 initial values of the owned rows, one heap block of its own (free());
                          NULL on meta and after the optimizer took it as the master */
    oct_tensor value;  /* compute copy in the activation dtype (F32: the master itself); data NULL
                          while on meta or when `storage` computes instead */
    oct_weight_storage *storage; /* low-precision weight, or NULL */
    float *grad;                 /* FP32 gradient accumulator of the owned rows, or NULL */
    bool grad_started;           /* the accumulator holds the sum of the micro-batches so far */
} oct_param;

int64_t oct_param_numel(const oct_param *param);
int64_t oct_param_row_numel(const oct_param *param); /* elements of one row of dim 0 */
int64_t oct_param_own_numel(const oct_param *param); /* elements of the owned rows */
int64_t oct_param_rows(const oct_param *param);      /* shape[0] (* shape[1] if 3-D); 1 for 1-D */
int64_t oct_param_cols(const oct_param *param);      /* last dim */

/* A named state tensor that is not trained (e_score_correction_bias). FP32. */
typedef struct oct_buffer {
    char *fqn;
    int64_t numel;
    float *data; /* in the tree's arena; NULL on meta */
    bool persistent;
} oct_buffer;

enum { OCT_MODULE_MAX_PARAMS = 2 };

typedef struct oct_module {
    const oct_module_type *type;
    char *name; /* last part of the FQN */
    char *fqn;  /* of the first place it stands */
    bool training;
    oct_param *params[OCT_MODULE_MAX_PARAMS]; /* Linear: weight, bias; experts: gate_up, down */
    const char *param_names[OCT_MODULE_MAX_PARAMS];
    int param_count;
    oct_buffer *buffer;           /* NULL if none */
    struct oct_module **children; /* a slot each; replacement swaps the pointer in the slot */
    int child_count, child_capacity;
    void *state; /* what its table needs, owned by the tree's arena */
} oct_module;

/* A tree with its memory. */
typedef struct oct_module_tree {
    oct_arena arena;
    oct_module *root;
    oct_param **params; /* in named_parameters order, each once */
    int64_t param_count;
    oct_buffer **buffers;
    int64_t buffer_count;
} oct_module_tree;

/* An empty tree; release frees modules, parameters and buffers with all that they still own. */
void oct_module_tree_init(oct_module_tree *tree);
void oct_module_tree_release(oct_module_tree *tree);

/* Makes a module named `name` under `parent` (NULL: the root) with room for `max_children`. */
oct_status oct_module_add(oct_module_tree *tree, oct_module *parent, const char *name,
                          const oct_module_type *type, int max_children, oct_module **out,
                          oct_err *err) OCT_MUST_CHECK;

/* Puts an existing module into another slot (an alias): same identity, second FQN. */
oct_status oct_module_alias(oct_module_tree *tree, oct_module *parent, oct_module *module,
                            oct_err *err) OCT_MUST_CHECK;

/* Declares a parameter on meta: FQN = module FQN + "." + name. */
oct_status oct_module_add_param(oct_module_tree *tree, oct_module *module, const char *name,
                                int ndim, const int64_t *shape, oct_param **out,
                                oct_err *err) OCT_MUST_CHECK;

/* Names an existing parameter in a second module (tied weights). */
oct_status oct_module_share_param(oct_module_tree *tree, oct_module *module, const char *name,
                                  oct_param *param, oct_err *err) OCT_MUST_CHECK;

/* Its memory comes with materialisation. Errors: OCT_E_API if the module has one, OCT_E_NOMEM. */
oct_status oct_module_add_buffer(oct_module_tree *tree, oct_module *module, const char *name,
                                 int64_t numel, bool persistent, oct_buffer **out,
                                 oct_err *err) OCT_MUST_CHECK;

/* Gives every buffer zeroed data; buffers that have data keep it. */
oct_status oct_module_materialise_buffers(oct_module_tree *tree, oct_err *err) OCT_MUST_CHECK;

/* Depth first, parents before children, every slot (aliases visited under each of their FQNs).
 * `slot` is the pointer that a replacement would swap. Stops at the first failure. */
typedef oct_status (*oct_module_visitor)(void *arg, const char *fqn, oct_module **slot,
                                         oct_err *err);
oct_status oct_module_walk(oct_module_tree *tree, oct_module_visitor visit, void *arg,
                           oct_err *err) OCT_MUST_CHECK;

/* How many slots a walk visits. */
int64_t oct_module_slots(oct_module_tree *tree);

/* NULL if there is none. */
oct_module *oct_module_find(oct_module_tree *tree, const char *fqn);

/* true if `type` is `of` or derives from it. */
bool oct_module_type_is(const oct_module_type *type, const oct_module_type *of);

#endif
