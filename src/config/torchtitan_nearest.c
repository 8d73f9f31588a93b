/* What a misspelt key or table of a torchtitan job most likely means. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "config/torchtitan_keys.h"

enum {
    UNIT = 256,      /* one edit; below it: keys that share words, by their edits */
    FAR = 2,         /* edits of a name that is looked for in other sections */
    SHORT_WORDS = 3, /* shorter names share no words with others */
};

static const char *last_segment(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool same_section(const char *a, const char *b)
{
    const size_t length = (size_t)(last_segment(a) - a);
    return length == (size_t)(last_segment(b) - b) && strncmp(a, b, length) == 0;
}

static size_t section_edits(const char *a, const char *b)
{
    char x[OCT_TT_PATH], y[OCT_TT_PATH];
    (void)snprintf(x, sizeof x, "%.*s", (int)(last_segment(a) - a), a);
    (void)snprintf(y, sizeof y, "%.*s", (int)(last_segment(b) - b), b);
    return oct_edit_distance(x, y);
}

/* Whether the shorter name stands between underscores of the longer: fqns in filter_fqns. */
static bool share_words(const char *a, const char *b)
{
    const bool shorter = strlen(a) < strlen(b);
    const char *part = shorter ? a : b, *all = shorter ? b : a;
    const size_t length = strlen(part);
    if (length < SHORT_WORDS)
        return false;
    for (const char *at = all; (at = strstr(at, part)) != NULL; at++)
        if ((at == all || at[-1] == '_') && (at[length] == '\0' || at[length] == '_'))
            return true;
    return false;
}

/* Whether no value of the key is accepted. */
static bool always_refused(const oct_torchtitan_key *key)
{
    return key->fate == OCT_TT_REFUSED && !key->fallback;
}

/* The search for one path. */
typedef struct search {
    const char *path;
    bool siblings; /* something stands in the section of the path */
    size_t least;
    const char *nearest;
    size_t nearest_length; /* a table is the beginning of a key's path */
} search;

static void offer(search *s, const char *text, size_t length)
{
    char candidate[OCT_TT_PATH];
    const size_t path_length = strlen(s->path);
    (void)snprintf(candidate, sizeof candidate, "%.*s", (int)length, text);
    if (length < path_length && strncmp(s->path, candidate, length) == 0 && s->path[length] == '.')
        return; /* a table that holds the path */
    const char *wanted = last_segment(s->path), *name = last_segment(candidate);
    const size_t edits = oct_edit_distance(wanted, name);
    size_t cost = UNIT * edits;
    if (same_section(s->path, candidate)) {
        if (share_words(wanted, name))
            cost = edits;
    } else {
        /* A neighbour in the section is likelier than all but the right name elsewhere. Where there
         * are no neighbours, similar sections count. */
        const size_t sections = section_edits(s->path, candidate);
        if (s->siblings && edits > FAR)
            return;
        cost = s->siblings || edits == 0 ? 2 * UNIT * (edits + 1) + sections
                                         : UNIT * (2 * edits + sections);
    }
    if (cost < s->least) {
        s->least = cost;
        s->nearest = text;
        s->nearest_length = length;
    }
}

/* Offers the tables that lead to a key. */
static void offer_tables(search *s, const char *path)
{
    for (const char *dot = path; (dot = strchr(dot, '.')) != NULL; dot++)
        offer(s, path, (size_t)(dot - path));
}

void oct_torchtitan_nearest(const char *path, bool table, char out[OCT_TT_PATH])
{
    int count = 0;
    const oct_torchtitan_key *keys = oct_torchtitan_keys(&count);
    search s = {.path = path, .least = SIZE_MAX};
    for (int i = 0; i < count && !table; i++)
        s.siblings = s.siblings || (!always_refused(&keys[i]) && same_section(path, keys[i].path));
    for (int i = 0; i < count; i++) {
        if (always_refused(&keys[i]))
            continue;
        if (table)
            offer_tables(&s, keys[i].path);
        else
            offer(&s, keys[i].path, strlen(keys[i].path));
    }
    (void)snprintf(out, OCT_TT_PATH, "%.*s", (int)s.nearest_length, s.nearest);
}
