/* FSDP2: a rank keeps its rows of every parameter and sees a whole unit only while it computes with
 * it. Weights are gathered before a unit's pass and released after it; the gradient of each
 * micro-batch is staged one parameter at a time and folded by the owners of its rows.
 *
 * Sees tensors of bytes and opaque metadata. Everything here is collective unless it says
 * otherwise: all ranks pass the same units in the same order. A failure leaves the ranks in
 * different places; the caller tells the others (oct_comm_leave). */
#ifndef OCT_FSDP_FSDP_H
#define OCT_FSDP_FSDP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/profile.h"
#include "base/trace.h"
#include "comm/comm.h"
#include "fsdp/extension.h"
#include "module/module.h"
#include "module/run.h"

/* Parameters that are gathered and released together: tree->params[first .. first+count-1]. */
typedef struct oct_fsdp_unit {
    const char *name; /* for phases and messages; outlives the fsdp */
    int64_t first, count;
    bool backward_reads; /* false: its backward pass needs no weights (embedding) */
    bool is_last;        /* its backward pass follows its forward pass: it stays gathered */
} oct_fsdp_unit;

typedef struct oct_fsdp_options {
    oct_comm *comm;        /* borrowed, more than one rank */
    oct_module_tree *tree; /* borrowed; row_begin, rows and replicated are set */
    const oct_fsdp_unit *units;
    int64_t unit_count;
    bool
        reshard_after_forward; /* false: a unit stays gathered from its forward to its backward pass
                                */
    bool prefetch;             /* gather the next unit of the pass before this one computes */
    oct_dtype reduce_dtype;    /* of gradients on their way: F32 or BF16 */
    oct_trace *trace;          /* may be NULL, as the next two */
    oct_profile *profile;
    oct_ledger *ledger;
} oct_fsdp_options;

typedef struct oct_fsdp oct_fsdp;

/* Owner of windows and staging. Units are copied. Not collective. Errors: OCT_E_NOMEM. */
oct_status oct_fsdp_create(const oct_fsdp_options *options, oct_fsdp **out,
                           oct_err *err) OCT_MUST_CHECK;

/* Clears value and storage of every sharded parameter; the shards belong to others. NULL is fine.
 * Not collective. */
void oct_fsdp_destroy(oct_fsdp *fsdp);

/* The compute form of a sharded parameter is not a plain tensor: gathers go through `extension`,
 * which gets `self`. Before oct_fsdp_seal, once per parameter. Not collective. Errors: OCT_E_API
 * naming the parameter if a function is missing, if it is not sharded, or extended twice. */
oct_status oct_fsdp_extend(oct_fsdp *fsdp, oct_param *param, const oct_fsdp_extension *extension,
                           void *self, oct_err *err) OCT_MUST_CHECK;

/* Takes over: param->value of a plain sharded parameter is the rank's rows (kept by their owner);
 * from here on value and storage exist only in the unshard window, value with the whole shape. All
 * ranks compare what they will gather. Errors: OCT_E_SHAPE naming parameter, tensor, two ranks and
 * what they have, if number, order, dtype or inner dims differ; OCT_E_API without a shard. */
oct_status oct_fsdp_seal(oct_fsdp *fsdp, oct_err *err) OCT_MUST_CHECK;

/* What a pass runs with. */
const oct_unit_hooks *oct_fsdp_hooks(oct_fsdp *fsdp);

/* Releases every unit: at the end of a pass, also a failed one. Not collective. */
void oct_fsdp_settle(oct_fsdp *fsdp);

/* After the last micro-batch of a step: all ranks get the sums of replicated parameters. */
oct_status oct_fsdp_finish_gradients(oct_fsdp *fsdp, oct_err *err) OCT_MUST_CHECK;

/* Bytes of gathered weights now; 0 outside unshard windows. Not collective. */
int64_t oct_fsdp_gathered_bytes(const oct_fsdp *fsdp);
/* The most that all windows ever held, each at its own moment. Not collective. */
int64_t oct_fsdp_peak_bytes(const oct_fsdp *fsdp);
bool oct_fsdp_is_gathered(const oct_fsdp *fsdp, int64_t unit);

#endif
