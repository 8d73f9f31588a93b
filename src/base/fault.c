#include "base/fault.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_POINTS = 8, MAX_NAME_BYTES = 64, ANY_RANK = -1 };

typedef struct armed_point {
    char name[MAX_NAME_BYTES];
    int64_t left; /* passes until it acts; 0: free */
    int rank;     /* ANY_RANK or the one whose passes count */
    int64_t step; /* 0 or the one whose passes count */
    oct_fault_action action;
} armed_point;

atomic_int oct_fault_armed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static armed_point points[MAX_POINTS];
static _Thread_local int own_rank;
static _Thread_local int64_t own_step;

void oct_fault_set_rank(int rank)
{
    own_rank = rank;
}

int oct_fault_rank(void)
{
    return own_rank;
}

void oct_fault_set_step(int64_t step)
{
    own_step = step;
}

static oct_status arm(const char *point, int64_t nth, int rank, int64_t step,
                      oct_fault_action action, oct_err *err)
{
    const size_t length = strlen(point);
    if (nth < 1 || length == 0 || length >= MAX_NAME_BYTES)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot arm fault point '%s': pass %lld, a name of 1 to %d bytes and a "
                        "pass from 1 on are required",
                        point, (long long)nth, MAX_NAME_BYTES - 1);
    oct_status status = OCT_E_API;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_POINTS && status != OCT_OK; i++) {
        if (points[i].left > 0)
            continue;
        memcpy(points[i].name, point, length + 1);
        points[i].left = nth;
        points[i].rank = rank;
        points[i].step = step;
        points[i].action = action;
        atomic_fetch_add(&oct_fault_armed, 1);
        status = OCT_OK;
    }
    pthread_mutex_unlock(&lock);
    if (status != OCT_OK)
        return OCT_FAIL(err, status,
                        "cannot arm fault point '%s': %d are armed, which is the limit", point,
                        MAX_POINTS);
    return OCT_OK;
}

oct_status oct_fault_arm(const char *point, int64_t nth, oct_fault_action action, oct_err *err)
{
    return arm(point, nth, ANY_RANK, 0, action, err);
}

oct_status oct_fault_arm_rank(const char *point, int64_t nth, int rank, oct_fault_action action,
                              oct_err *err)
{
    if (rank < 0)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot arm fault point '%s': rank %d, 0 or more is required", point, rank);
    return arm(point, nth, rank, 0, action, err);
}

/* A whole number >= low that is all of `text`; -1 if it is not. */
static long long number_of(const char *text, long long low)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    return errno || end == text || *end || value < low ? -1 : value;
}

/* Reads one word of OCTET_FAULT, modifying it: false if it is none. */
static bool read_word(char *word, armed_point *out)
{
    char *rest = NULL;
    const char *point = *word == ':' ? NULL : strtok_r(word, ":", &rest);
    const char *nth = point ? strtok_r(NULL, ":", &rest) : NULL;
    if (!nth || strlen(point) >= MAX_NAME_BYTES || number_of(nth, 1) < 0)
        return false;
    *out = (armed_point){.left = number_of(nth, 1), .rank = ANY_RANK};
    memcpy(out->name, point, strlen(point) + 1);
    for (const char *part = strtok_r(NULL, ":", &rest); part; part = strtok_r(NULL, ":", &rest)) {
        const long long rank = strncmp(part, "rank=", 5) == 0 ? number_of(part + 5, 0) : -1;
        const long long step = strncmp(part, "step=", 5) == 0 ? number_of(part + 5, 1) : 0;
        if (rank >= 0 && rank <= INT_MAX)
            out->rank = (int)rank;
        else if (step > 0)
            out->step = step;
        else if (strcmp(part, "kill") == 0)
            out->action = OCT_FAULT_KILL;
        else if (strcmp(part, "term") == 0)
            out->action = OCT_FAULT_TERM;
        else
            return false;
    }
    return true;
}

static oct_status arm_word(char *word, oct_err *err)
{
    char shown[MAX_NAME_BYTES * 2];
    (void)strncpy(shown, word, sizeof shown - 1);
    shown[sizeof shown - 1] = '\0';
    armed_point point;
    if (!read_word(word, &point))
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot arm a fault: '%s', point:n[:rank=R][:step=S][:kill|:term] is required (%s)",
                        shown, OCT_FAULT_ENV);
    return arm(point.name, point.left, point.rank, point.step, point.action, err);
}

oct_status oct_fault_arm_from_environment(oct_err *err)
{
    const char *text = getenv(OCT_FAULT_ENV);
    if (!text || !*text)
        return OCT_OK;
    char *copy = strdup(text);
    if (!copy)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read %s: out of memory", OCT_FAULT_ENV);
    oct_status status = OCT_OK;
    char *rest = NULL;
    for (char *word = strtok_r(copy, ",", &rest); word && status == OCT_OK;
         word = strtok_r(NULL, ",", &rest))
        status = arm_word(word, err);
    free(copy);
    return status;
}

void oct_fault_disarm_all(void)
{
    pthread_mutex_lock(&lock);
    memset(points, 0, sizeof points);
    atomic_store(&oct_fault_armed, 0);
    pthread_mutex_unlock(&lock);
}

bool oct_fault_pass(const char *point)
{
    bool acts = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_POINTS; i++) {
        if (points[i].left == 0 || strcmp(points[i].name, point) != 0)
            continue;
        if (points[i].rank != ANY_RANK && points[i].rank != own_rank)
            continue;
        if (points[i].step != 0 && points[i].step != own_step)
            continue;
        if (--points[i].left > 0)
            continue;
        atomic_fetch_sub(&oct_fault_armed, 1);
        if (points[i].action != OCT_FAULT_FAIL)
            (void)kill(getpid(), points[i].action == OCT_FAULT_KILL ? SIGKILL : SIGTERM);
        acts = acts || points[i].action != OCT_FAULT_TERM;
    }
    pthread_mutex_unlock(&lock);
    return acts;
}
