/* Judges: each reads what a run wrote and counts what it must not have done. They take facts and
 * traces only, so that a test can hand them small ones made by hand. */
#ifndef OCT_VERIFY_JUDGE_H
#define OCT_VERIFY_JUDGE_H

#include "verify/facts.h"
#include "verify/trace.h"

/* What a judge saw, over all ranks. */
typedef struct oct_finding {
    int64_t seen;    /* things that were looked at */
    int64_t wrong;   /* of them, things that must not be */
    char first[320]; /* the first of those */
} oct_finding;

/* Counts one wrong thing; the text of the first is kept. */
void oct_finding_wrong(oct_finding *finding, const char *text, ...) OCT_PRINTF(2, 3);

/* A check that holds if something was seen (unless may_be_empty) and nothing of it was wrong. */
bool oct_finding_check(json_t *result, const oct_verify_facts *facts, const oct_finding *finding,
                       const char *what, const char *required, bool may_be_empty);

/* Every function adds to its finding what one rank's trace shows. */

/* Targets are replaced, each once and by the right type, and nothing else is. */
void oct_judge_replacement(const oct_verify_facts *facts, const oct_verify_trace *trace,
                           oct_finding *finding);

/* Every target multiplies in the format of the run, in each phase of each micro-batch exactly once
 * (fprop twice under recompute), with the layout and the orientation of its kind. seen: products.
 * roles[kind][phase] counts products of dense (0) and grouped (1) targets in fprop, dgrad, wgrad.
 */
void oct_judge_products(const oct_verify_facts *facts, const oct_verify_trace *trace,
                        oct_finding *finding, int64_t roles[2][3]);

/* No product at a target is BF16 or FP32. seen: products at targets. */
void oct_judge_high_precision(const oct_verify_facts *facts, const oct_verify_trace *trace,
                              oct_finding *finding);

/* Products and quantizations anywhere else: the head and the router in high precision, nothing
 * more. seen: products that are not at targets. */
void oct_judge_boundary(const oct_verify_facts *facts, const oct_verify_trace *trace,
                        oct_finding *finding);

/* Format, dtype and scale dtype of every quantization; HiF8: the scale is amax / 15, gradients amax
 * / 224, in FP32, or 1 where amax is not valid. */
void oct_judge_scales(const oct_verify_facts *facts, const oct_verify_trace *trace,
                      oct_finding *finding);

/* Every weight is quantized once before the first product (once more from the masters of a
 * checkpoint) and once after the last product of each step: not between micro-batches, not under
 * recompute, not on its own. */
void oct_judge_refresh(const oct_verify_facts *facts, const oct_verify_trace *trace,
                       oct_finding *finding);

/* No work is done twice (17.4f): quantizations of an operand, gathers of a parameter, reductions of
 * a gradient in one micro-batch. */
void oct_judge_duplicates(const oct_verify_facts *facts, const oct_verify_trace *trace,
                          oct_finding *finding);

/* Gathers of the targets' weights: table 9.1 by phase, kind and reshard; dtypes; the whole has the
 * logical shape. A replicated weight is never gathered. */
void oct_judge_gather_table(const oct_verify_facts *facts, const oct_verify_trace *trace,
                            oct_finding *finding);

/* Over the traces of all ranks: the same gathers in the same order, and each whole tensor is the
 * ranks' parts one after another. */
void oct_judge_gather_schema(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                             oct_finding *finding);

/* HiF8, over all ranks: what a gather brings are the scales that the ranks' last refresh made: of a
 * dense weight one and the same from every rank, of experts each its own, in their order. */
void oct_judge_gathered_scales(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                               oct_finding *finding);

/* The words for a mask of judges. */
enum {
    OCT_JUDGE_REPLACEMENT = 1,
    OCT_JUDGE_PRODUCTS = 2,
    OCT_JUDGE_BOUNDARY = 4,
    OCT_JUDGE_SCALES = 8,
    OCT_JUDGE_REFRESH = 16,
    OCT_JUDGE_GATHERS = 32,
    OCT_JUDGE_DUPLICATES = 64,
    OCT_JUDGE_ALL = 127
};

/* Memory that is not given back shows as growth: the peak of the last step against that of the
 * middle, before the first save and after it, which needs memory of its own. Peaks are of the
 * process so far, so that they never fall. A run of less than 10 steps is not judged. */
void oct_judge_growth(const oct_verify_run *run, json_t *result);

/* Runs these judges over all ranks of a run and adds a check for each to `result`. Errors: those of
 * reading what the run wrote. */
oct_status oct_judge_run(const oct_verify_run *run, unsigned judges, json_t *result,
                         oct_err *err) OCT_MUST_CHECK;

/* Checks the keys, dtypes, shapes and the step of a checkpoint of a run against the plan of its
 * model (octet plan --json). A checkpoint that cannot be read is a check that fails. */
oct_status oct_judge_checkpoint(const oct_verify_run *run, int64_t step, const json_t *plan,
                                json_t *result, oct_err *err) OCT_MUST_CHECK;

/* HiF8: amax / 15 or 224 as FP32, or 1. Written down here once more on purpose. */
float oct_judge_hif8_scale(float amax, float format_max);

#endif
