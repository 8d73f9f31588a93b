/* docs/config-toml.md, made from the table of torchtitan's keys. */
#ifndef OCT_CONFIG_TORCHTITAN_TEXT_H
#define OCT_CONFIG_TORCHTITAN_TEXT_H

#include "base/arena.h"
#include "base/status.h"

/* The page as Markdown, in `arena`. */
oct_status oct_torchtitan_reference_markdown(oct_arena *arena, char **text,
                                             oct_err *err) OCT_MUST_CHECK;

#endif
