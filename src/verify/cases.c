/* Every case, in the order in which they run. */
#include "verify/cases.h"

const oct_verify_case oct_verify_cases[] = {
    {"Q3-10", "every illegal configuration is refused at its stage", oct_verify_q3_10, true},
    {"Q3-11", "no format is slower than BF16", oct_verify_q3_11, true},
    {"17.3.2", "layered numerics: products, one layer, curves", oct_verify_numerics, true},
    {NULL, NULL, NULL, false},
};
