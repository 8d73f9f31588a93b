#include "trainer/sampling.h"

#include <stdlib.h>

#include "numeric/fmath.h"

int32_t oct_sample_greedy(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

/* Most likely first, then lower id. */
static int compare_candidates(const void *a, const void *b)
{
    const oct_candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

int32_t oct_sample_nucleus(const float *logits, int64_t vocab, double temperature, double top_p,
                           double uniform, oct_candidate *work)
{
    const float peak = logits[oct_sample_greedy(logits, vocab)];
    for (int64_t v = 0; v < vocab; v++)
        work[v] =
            (oct_candidate){.weight = oct_expf((float)((double)(logits[v] - peak) / temperature)),
                            .id = (int32_t)v};
    qsort(work, (size_t)vocab, sizeof *work, compare_candidates);
    double sum = 0.0; /* in the order of the walk below, so that top_p 1 ends at the last one */
    for (int64_t i = 0; i < vocab; i++)
        sum += (double)work[i].weight;
    double kept = 0.0;
    int64_t count = 0;
    do
        kept += (double)work[count++].weight;
    while (count < vocab && kept < top_p * sum);
    const double target = uniform * kept;
    double passed = 0.0;
    for (int64_t i = 0; i < count - 1; i++) {
        passed += (double)work[i].weight;
        if (target < passed)
            return work[i].id;
    }
    return work[count - 1].id;
}
