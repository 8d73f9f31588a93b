/* The one table of configuration keys. It drives the reader, its checks, --print-config,
 * configs/reference.yaml and docs/config.md. */
#ifndef OCT_CONFIG_SCHEMA_H
#define OCT_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

/* What a key holds, and so which member of oct_config (or oct_plan_override) it fills. */
typedef enum oct_key_type {
    OCT_KEY_BOOL,       /* bool */
    OCT_KEY_INT,        /* int64_t */
    OCT_KEY_FLOAT,      /* double */
    OCT_KEY_FLOAT_PAIR, /* double[2] */
    OCT_KEY_STRING,     /* const char *, not empty */
    OCT_KEY_STRINGS,    /* oct_string_list from a string or a list of them, not empty */
    OCT_KEY_WORD,       /* const char *, one of `words` */
    OCT_KEY_WORD_BOOL,  /* bool: false for the first word, true for the second */
    OCT_KEY_WORD_ENUM,  /* an int-sized enum: the index of the word */
    OCT_KEY_FIELDS,     /* const char *: a map of any keys, kept as JSON text */
    OCT_KEY_PLAN        /* the rules of plan_overrides */
} oct_key_type;

enum { OCT_KEY_MAX_WORDS = 4 };

/* One key. */
typedef struct oct_key {
    const char *path; /* "training.seq_length" */
    oct_key_type type;
    size_t offset;        /* of the member */
    const char *fallback; /* the default as YAML; NULL: the key is required */
    bool nullable;        /* null is legal and stores `absent` */
    double absent;
    double min, max; /* bounds of numbers */
    bool above_min;  /* min itself is excluded */
    bool below_max;
    const char *words[OCT_KEY_MAX_WORDS + 1];
    bool none_is_first;  /* `none` and false mean the first word */
    const char *only;    /* the one supported value of a BOOL or INT, with `reason` */
    const char *reason;  /* why other values are refused */
    const char *example; /* placeholder of a required key: "int" */
    const char *unit;
    const char *help;
} oct_key;

/* A list of keys; the second one is an entry of plan_overrides. */
typedef struct oct_schema {
    const oct_key *keys;
    int count;
} oct_schema;

/* The keys of a configuration, and those of one rule of plan_overrides. Static. */
oct_schema oct_schema_config(void);
oct_schema oct_schema_plan_override(void);

/* The key of this path, or NULL. */
const oct_key *oct_schema_find(oct_schema schema, const char *path);

/* Whether keys lie below this path ("training"). */
bool oct_schema_is_section(oct_schema schema, const char *path);

/* The path that a misspelt one most likely means. Never NULL. */
const char *oct_schema_nearest(oct_schema schema, const char *path);

/* Why a key that other trainers have is not here, or NULL: "torch.compile is not supported". */
const char *oct_schema_refusal(const char *path);

/* "an integer >= 1", "one of off, full": what a key requires, for messages and documentation. */
enum { OCT_KEY_REQUIRES = 256 };
const char *oct_key_requires(const oct_key *key, char buffer[OCT_KEY_REQUIRES]);

#endif
