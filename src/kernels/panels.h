/* 8-bit operands in packed form, docs/spec/block-integer.md: what packing and the product share.
 * Section numbers in comments are those of the specification. */
#ifndef OCT_KERNELS_PANELS_H
#define OCT_KERNELS_PANELS_H

#include "kernels/exec.h"

enum { OCT_GROUPS_PER_CHUNK = OCT_GEMM_CHUNK / OCT_GEMM_GROUP };

_Static_assert(OCT_GROUPS_PER_CHUNK % OCT_PRESENT_STEP == 0, "words of a chunk");

/* What the choice of the route asks of an operand (section 5). */
typedef struct oct_panel_facts {
    int64_t remainders;
    int min_exponent, max_exponent; /* over units and remainders */
    bool nonfinite;
} oct_panel_facts;

/* Of no elements at all. */
static inline oct_panel_facts oct_panel_facts_none(void)
{
    return (oct_panel_facts){.min_exponent = INT16_MAX, .max_exponent = INT16_MIN};
}

static inline void oct_panel_facts_add(oct_panel_facts *all, const oct_panel_facts *part)
{
    all->remainders += part->remainders;
    all->nonfinite |= part->nonfinite;
    if (part->min_exponent < all->min_exponent)
        all->min_exponent = part->min_exponent;
    if (part->max_exponent > all->max_exponent)
        all->max_exponent = part->max_exponent;
}

/* The remainders of one panel in one chunk. */
typedef struct oct_remainder_range {
    int64_t first, count;
} oct_remainder_range;

struct oct_panels {
    oct_quantized_matrix source;
    oct_side side;
    int64_t width; /* rows of a panel */
    int64_t panels, groups, chunks;
    int16_t *mantissas;          /* [panels][groups * 32][width][2] */
    float *units;                /* [panels][groups][width] */
    oct_remainder *list;         /* a range by k; NULL if there is none or the route is known */
    oct_remainder_range *ranges; /* [panels][chunks], into list, in no order */
    /* See oct_remainder_list; where the range is not empty: */
    int64_t words;         /* of a panel: one for each group, rounded up to OCT_PRESENT_STEP */
    uint64_t *present;     /* [panels][words] */
    uint16_t *before;      /* the same */
    oct_panel_facts facts; /* complete unless there are more remainders than the capacity */
};

/* From this many remainders on, the FP32-FMA route is taken whatever the other side holds. */
int64_t oct_remainder_capacity(int64_t rows, int64_t k, oct_side side);

/* The scale bytes of vector `row` in group `group` of k; the second is undefined past the end. */
const uint8_t *oct_scale_pair(const oct_quantized_matrix *q, int64_t row, int64_t group);

/* As oct_pack, for a part of an operand: the list is made for up to `capacity` remainders. */
oct_status oct_pack_part(const oct_exec *exec, const oct_quantized_matrix *source, oct_side side,
                         int64_t capacity, oct_arena *arena, oct_panels **out,
                         oct_err *err) OCT_MUST_CHECK;

/* Section 5: weights of the two remainder counts in the route formula. */
enum { OCT_LEFT_COST = 19, OCT_RIGHT_COST = 48 };

#endif
