/* Every case, in the order in which they run. */
#include "verify/cases.h"

const oct_verify_case oct_verify_cases[] = {
    {"Q3-01", "BF16 baseline: trains, saves, resumes", oct_verify_q3_01, true},
    {"Q3-02", "MXFP8 from end to end", oct_verify_q3_02, true},
    {"Q3-03", "HiF8 from end to end", oct_verify_q3_03, true},
    {"Q3-04", "what low precision replaces and what it leaves", oct_verify_q3_04, true},
    {"Q3-05", "MXFP8 under FSDP2: what is gathered when", oct_verify_q3_05, true},
    {"Q3-06", "HiF8 under FSDP2: data and scales", oct_verify_q3_06, true},
    {"Q3-07", "gradient accumulation refreshes nothing", oct_verify_q3_07, true},
    {"Q3-08", "full recompute refreshes nothing and changes no bit", oct_verify_q3_08, true},
    {"Q3-09", "a resumed run is the continuous run", oct_verify_q3_09, true},
    {"17.2", "the 48 combinations of format, sharding, recompute, fallback and accumulation",
     oct_verify_combinations, true},
    {"17.3.1", "HiF8: products, experts, scales, delayed scaling", oct_verify_hif8, true},
    {"Q3-10", "every illegal configuration is refused at its stage", oct_verify_q3_10, true},
    {"Q3-11", "no format is slower than BF16", oct_verify_q3_11, true},
    {"17.3.2", "layered numerics: products, one layer, curves", oct_verify_numerics, true},
    {"17.4f", "no work is done twice in any run", oct_verify_duplicates, true},
    {"16.6", "one format of one configuration", oct_verify_one_format, false},
    {"dry-run", "hits, shards, legality, memory and gathers of the plan", oct_verify_dry_run,
     false},
    {NULL, NULL, NULL, false},
};
