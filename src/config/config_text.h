/* Texts made from the schema: the files configs/reference.yaml and docs/config.md. */
#ifndef OCT_CONFIG_CONFIG_TEXT_H
#define OCT_CONFIG_CONFIG_TEXT_H

#include "base/arena.h"
#include "base/status.h"

/* Every key with its default and meaning as a YAML file that loads; required keys are comments.
 * The text lives in `arena`. */
oct_status oct_config_reference_yaml(oct_arena *arena, char **text, oct_err *err) OCT_MUST_CHECK;

/* The same for people, in Markdown. */
oct_status oct_config_reference_markdown(oct_arena *arena, char **text,
                                         oct_err *err) OCT_MUST_CHECK;

#endif
