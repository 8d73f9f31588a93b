/* The names that torchtitan gives to the modules of DeepSeek-V3, and those of HF. */
#ifndef OCT_MODEL_DEEPSEEK_V3_TORCHTITAN_NAMES_H
#define OCT_MODEL_DEEPSEEK_V3_TORCHTITAN_NAMES_H

#include <stdbool.h>

/* One module under both names; `*` is the number of a layer. */
typedef struct oct_dsv3_alias {
    const char *torchtitan, *hf;
} oct_dsv3_alias;

/* Every module that computes, and expert_bias. Static. */
const oct_dsv3_alias *oct_dsv3_aliases(int *count);

enum { OCT_DSV3_NAME = 160 };

/* The other name of a module, or of its weight (`...weight`). false, and nothing written, for a
 * name that is in no row. */
bool oct_dsv3_torchtitan_name(const char *hf, char out[OCT_DSV3_NAME]);
bool oct_dsv3_hf_name(const char *torchtitan, char out[OCT_DSV3_NAME]);

#endif
