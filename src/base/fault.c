#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POINTS = 8, MAX_NAME_BYTES = 64 };

typedef struct armed_point {
    char name[MAX_NAME_BYTES];
    int64_t left; /* passes until it acts; 0: free */
    oct_fault_action action;
} armed_point;

atomic_int oct_fault_armed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static armed_point points[MAX_POINTS];

oct_status oct_fault_arm(const char *point, int64_t nth, oct_fault_action action, oct_err *err)
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

/* One `point:n[:kill]` of OCTET_FAULT; modifies `word`. */
static oct_status arm_word(char *word, oct_err *err)
{
    char shown[MAX_NAME_BYTES * 2];
    (void)strncpy(shown, word, sizeof shown - 1);
    shown[sizeof shown - 1] = '\0';
    oct_fault_action action = OCT_FAULT_FAIL;
    long long nth = 0;
    char *colon = strchr(word, ':');
    if (colon) {
        *colon = '\0';
        char *end = NULL;
        errno = 0;
        nth = strtoll(colon + 1, &end, 10);
        if (strcmp(end, ":kill") == 0)
            action = OCT_FAULT_KILL;
        else if (*end != '\0' || errno)
            nth = 0;
    }
    if (nth < 1 || *word == '\0' || strlen(word) >= MAX_NAME_BYTES)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot arm a fault: '%s', point:n or point:n:kill is required (%s)", shown,
                        OCT_FAULT_ENV);
    return oct_fault_arm(word, nth, action, err);
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
        if (--points[i].left > 0)
            continue;
        atomic_fetch_sub(&oct_fault_armed, 1);
        if (points[i].action == OCT_FAULT_KILL)
            (void)raise(SIGKILL);
        acts = true;
    }
    pthread_mutex_unlock(&lock);
    return acts;
}
