/* The one table of torchtitan's keys (v0.2.2, with those of torchtitan-npu): their types and
 * defaults, and what becomes of each here. It drives the TOML dialect and docs/config-toml.md. */
#ifndef OCT_CONFIG_TORCHTITAN_KEYS_H
#define OCT_CONFIG_TORCHTITAN_KEYS_H

#include <stdbool.h>

typedef enum oct_torchtitan_type {
    OCT_TT_BOOL,
    OCT_TT_INT,
    OCT_TT_FLOAT,
    OCT_TT_STRING,
    OCT_TT_STRINGS, /* a list of strings; on the command line A,B,C */
    OCT_TT_LIST     /* any list; on the command line A,B,C, each as YAML */
} oct_torchtitan_type;

typedef enum oct_torchtitan_fate {
    OCT_TT_MAPPED,  /* the value of the octet key */
    OCT_TT_READ,    /* decides about the octet key, as the note says */
    OCT_TT_IGNORED, /* no effect */
    OCT_TT_WARNED,  /* no effect; another value than the default is told once */
    OCT_TT_REFUSED  /* another value than the default would change results: an error */
} oct_torchtitan_fate;

enum { OCT_TT_MAX_WORDS = 3 };

typedef struct oct_torchtitan_key {
    const char *path; /* "training.seq_len" */
    oct_torchtitan_type type;
    const char *fallback; /* as YAML; NULL: none, a required key or one whose every value is refused
                           */
    oct_torchtitan_fate fate;
    const char *octet; /* the key of config/schema.c that it fills or decides about; else NULL */
    const char *note;  /* how it is read, or why it has no effect or is refused */
    const char *words[OCT_TT_MAX_WORDS + 1]; /* the values that may be written, if not any */
} oct_torchtitan_key;

/* All of them, sections together. Static. */
const oct_torchtitan_key *oct_torchtitan_keys(int *count);

/* The key of this path, or NULL. */
const oct_torchtitan_key *oct_torchtitan_find(const char *path);

/* Whether keys lie below this path. */
bool oct_torchtitan_is_section(const char *path);

/* The key that decides about this octet key, or NULL: then [octet] is its place. */
const oct_torchtitan_key *oct_torchtitan_place_of(const char *octet);

/* The path that a misspelt one most likely means: a name of the same section that shares words with
 * it, the right name in another section, or the fewest edits; never a key of which every value is
 * refused. table: the path of a table is looked for. */
enum { OCT_TT_PATH = 128 };
void oct_torchtitan_nearest(const char *path, bool table, char out[OCT_TT_PATH]);

/* "an integer", "a boolean": for messages and documentation. */
const char *oct_torchtitan_type_name(oct_torchtitan_type type);

#endif
