/* The converters of a torchtitan job: as rules of the replacement plan, and in the log. */
#ifndef OCT_TRAINER_CONVERTERS_H
#define OCT_TRAINER_CONVERTERS_H

#include "config/config.h"
#include "trainer/build.h"

/* Turns the converters of a job into plan_overrides and low_precision.enabled, which the modules of
 * its model decide: filter_fqns and fqns are looked for, as substrings, in the torchtitan and the
 * HF name of each. A group of modules that is converted whole becomes one pattern, so that the
 * rules are those that a YAML job would have. Nothing to do for a YAML job, or a second time. New
 * strings live in `arena`; a head that is converted is told through `note` (may be NULL) as one
 * "warning: ..." line. Errors: those of the HF config; OCT_E_CONFIG for an entry that no module
 * could carry, with the nearest names, and for a converter that reaches no module. */
oct_status oct_converters_expand(oct_config *config, oct_arena *arena, oct_config_note note,
                                 void *note_arg, oct_err *err) OCT_MUST_CHECK;

/* The lines that a torchtitan user looks for in the log, in the order in which the converters are
 * made and run; counts are those of the built tree. Nothing for a YAML job. */
oct_status oct_converters_tell(const oct_config *config, oct_build *build,
                               void (*tell)(void *arg, const char *line), void *arg,
                               oct_err *err) OCT_MUST_CHECK;

#endif
