/* What goes into a checkpoint: a list of named tensors and small objects. On several ranks every
 * rank lists the same keys, kinds, dtypes and shapes in the same order. */
#ifndef OCT_CHECKPOINT_ITEM_H
#define OCT_CHECKPOINT_ITEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "module/module.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"

typedef enum oct_item_kind {
    OCT_ITEM_TENSOR,
    OCT_ITEM_INT,
    OCT_ITEM_FLOAT,
    OCT_ITEM_BOOL,
    OCT_ITEM_STRING, /* UTF-8 */
    OCT_ITEM_BYTES,
    OCT_ITEM_INT_LIST
} oct_item_kind;

/* One entry. key, path and small values are copied into the list; tensor data is borrowed and has
 * to stay unchanged until the save is over (oct_checkpoint_wait). */
typedef struct oct_item {
    const char *key;     /* "model.norm.weight", "optimizer.state.model.norm.weight.exp_avg" */
    const char *path[4]; /* nesting of the key in a state dict, path_count names */
    int path_count;
    oct_item_kind kind;
    oct_dtype dtype; /* tensor: F32, or BF16 = rounded from `data` while it is written */
    int ndim;        /* 0 .. OCT_MAX_NDIM */
    int64_t shape[OCT_MAX_NDIM]; /* of the whole tensor */
    int64_t row_begin, rows;     /* the part of dim 0 that `data` holds; 0-d and objects: 0, 1 */
    bool sharded; /* several ranks: each gives its own rows; otherwise all give the same whole */
    const float *data;
    int64_t int_value; /* also BOOL */
    double float_value;
    const char *bytes; /* STRING, BYTES */
    int64_t byte_count;
    const int64_t *ints; /* INT_LIST */
    int64_t int_count;
} oct_item;

/* Owner of its entries. */
typedef struct oct_item_list {
    oct_arena arena;
    oct_item *items;
    int64_t count, capacity;
} oct_item_list;

/* An empty list. Its strings and buffers are its own, tensors are borrowed. */
void oct_item_list_init(oct_item_list *list);
void oct_item_list_release(oct_item_list *list);
void oct_item_list_clear(oct_item_list *list); /* keeps the memory */

/* A whole FP32 tensor, stored as `dtype` (F32 or BF16) under a top-level key. */
oct_status oct_item_add_tensor(oct_item_list *list, const char *key, oct_dtype dtype, int ndim,
                               const int64_t *shape, const float *data,
                               oct_err *err) OCT_MUST_CHECK;

/* Rows row_begin .. row_begin+rows-1 (0 rows are fine) of dim 0 of a tensor that the ranks hold in
 * parts; shape is that of the whole. */
oct_status oct_item_add_shard(oct_item_list *list, const char *key, oct_dtype dtype, int ndim,
                              const int64_t *shape, int64_t row_begin, int64_t rows,
                              const float *data, oct_err *err) OCT_MUST_CHECK;

/* Small objects under "<group>.<name>" (group "train_state": TT's place), or "<name>" if group is
 * NULL. */
oct_status oct_item_add_int(oct_item_list *list, const char *group, const char *name, int64_t value,
                            oct_err *err) OCT_MUST_CHECK;
oct_status oct_item_add_float(oct_item_list *list, const char *group, const char *name,
                              double value, oct_err *err) OCT_MUST_CHECK;
oct_status oct_item_add_bool(oct_item_list *list, const char *group, const char *name, bool value,
                             oct_err *err) OCT_MUST_CHECK;
oct_status oct_item_add_string(oct_item_list *list, const char *group, const char *name,
                               const char *value, oct_err *err) OCT_MUST_CHECK;
oct_status oct_item_add_bytes(oct_item_list *list, const char *group, const char *name,
                              const void *value, int64_t bytes, oct_err *err) OCT_MUST_CHECK;
oct_status oct_item_add_ints(oct_item_list *list, const char *group, const char *name,
                             const int64_t *values, int64_t count, oct_err *err) OCT_MUST_CHECK;

/* The logical weights (HF FQN, BF16 rounded from the master), and per parameter
 * optimizer.state.<fqn>.{master, exp_avg, exp_avg_sq} in FP32 and .step as 0-d FP32: the rows that
 * the slot owns, of parameters that are not replicated. Every rank lists every parameter, also if
 * it owns nothing of it. No wrapper, low-precision data or scale ever enters. */
oct_status oct_item_add_optimizer(oct_item_list *list, const oct_optimizer *optimizer,
                                  oct_err *err) OCT_MUST_CHECK;

/* Persistent buffers of the tree under their FQN, FP32. */
oct_status oct_item_add_buffers(oct_item_list *list, const oct_module_tree *tree,
                                oct_err *err) OCT_MUST_CHECK;

#endif
