#include "comm/node.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/profile.h"
#include "base/size.h"

enum {
    LINE = 64,
    PHASE_WORDS = OCT_COMM_PHASE_BYTES / 8,
    YIELDS = 20, /* before a waiter sleeps: peers that only copy are back within these */
    FAIL_NONE = 0,
    FAIL_WRITING = 1,
    FAIL_TOLD = 2
};

typedef struct member_state {
    _Alignas(LINE) atomic_uint_least32_t entered; /* barriers entered */
    atomic_uint_least64_t progress;
    atomic_uint_least64_t phase[PHASE_WORDS];
} member_state;

/* Valid when all zero. */
typedef struct region_head {
    _Alignas(LINE) atomic_uint_least32_t arrived;  /* at the barrier in work */
    _Alignas(LINE) atomic_uint_least32_t finished; /* barriers; the futex word */
    _Alignas(LINE) atomic_uint_least32_t failure;
    int32_t code, rank;
    char msg[sizeof((oct_err *)0)->msg];
    member_state member[];
} region_head;

_Static_assert(sizeof(atomic_uint_least32_t) == 4, "a futex is 32 bits wide");
_Static_assert(OCT_COMM_PHASE_BYTES % 8 == 0, "phases are copied in words");

oct_wait oct_wait_begin(double timeout)
{
    return (oct_wait){.timeout = timeout, .since = oct_clock_seconds()};
}

bool oct_wait_expired(oct_wait *wait, uint64_t stamp)
{
    const double now = oct_clock_seconds();
    if (stamp != wait->stamp || wait->turns++ == 0) {
        wait->stamp = stamp;
        wait->since = now;
    }
    return now - wait->since > wait->timeout;
}

static region_head *head_of(const oct_node *node)
{
    return (region_head *)(void *)node->region;
}

static size_t head_bytes(int members)
{
    return sizeof(region_head) + (size_t)members * sizeof(member_state);
}

size_t oct_node_region_bytes(int members, int slots, size_t slot_bytes)
{
    size_t bytes = 0;
    if (!oct_size_mul(slot_bytes, (size_t)slots, &bytes) ||
        !oct_size_mul(bytes, 2 * (size_t)members, &bytes) ||
        !oct_size_add(bytes, head_bytes(members), &bytes))
        return 0;
    return bytes;
}

unsigned char *oct_node_buffer(const oct_node *node, int member, int slot)
{
    const size_t set = (size_t)(node->turn & 1u) * (size_t)node->members + (size_t)member;
    return node->region + head_bytes(node->members) +
           (set * (size_t)node->slots + (size_t)slot) * node->slot_bytes;
}

void oct_node_publish(oct_node *node, uint64_t progress, const char *phase)
{
    member_state *own = &head_of(node)->member[node->index];
    char text[OCT_COMM_PHASE_BYTES] = "";
    memcpy(text, phase, strnlen(phase, sizeof text - 1));
    for (int i = 0; i < PHASE_WORDS; i++) {
        uint64_t word;
        memcpy(&word, text + 8 * i, sizeof word);
        atomic_store_explicit(&own->phase[i], word, memory_order_relaxed);
    }
    atomic_store_explicit(&own->progress, progress, memory_order_release);
}

uint64_t oct_node_progress(const oct_node *node, int member)
{
    return atomic_load_explicit(&head_of(node)->member[member].progress, memory_order_acquire);
}

void oct_node_phase(const oct_node *node, int member, char phase[OCT_COMM_PHASE_BYTES])
{
    for (int i = 0; i < PHASE_WORDS; i++) {
        const uint64_t word =
            atomic_load_explicit(&head_of(node)->member[member].phase[i], memory_order_relaxed);
        memcpy(phase + 8 * i, &word, sizeof word);
    }
    phase[OCT_COMM_PHASE_BYTES - 1] = '\0';
}

static void wake_all(region_head *head)
{
    (void)syscall(SYS_futex, &head->finished, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void oct_node_fail(oct_node *node, oct_err *err)
{
    region_head *head = head_of(node);
    uint_least32_t none = FAIL_NONE;
    if (atomic_compare_exchange_strong(&head->failure, &none, FAIL_WRITING)) {
        head->code = err->code;
        head->rank = err->rank;
        memcpy(head->msg, err->msg, sizeof head->msg);
        atomic_store_explicit(&head->failure, FAIL_TOLD, memory_order_release);
        wake_all(head);
        return;
    }
    while (oct_node_failure(node, err) == OCT_OK)
        (void)sched_yield();
}

oct_status oct_node_failure(const oct_node *node, oct_err *err)
{
    region_head *head = head_of(node);
    if (atomic_load_explicit(&head->failure, memory_order_acquire) != FAIL_TOLD)
        return OCT_OK;
    const oct_status code = OCT_FAIL(err, (oct_status)head->code, "%s", head->msg);
    if (err)
        err->rank = head->rank;
    return code;
}

void oct_node_enter(oct_node *node)
{
    region_head *head = head_of(node);
    node->turn++;
    atomic_store_explicit(&head->member[node->index].entered, node->turn, memory_order_relaxed);
    const uint_least32_t before =
        atomic_fetch_add_explicit(&head->arrived, 1, memory_order_acq_rel);
    if (before + 1 < (uint_least32_t)node->members)
        return;
    atomic_store_explicit(&head->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&head->finished, node->turn, memory_order_release);
    wake_all(head);
}

bool oct_node_wait(oct_node *node, double slice)
{
    region_head *head = head_of(node);
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&head->finished, memory_order_acquire) == node->turn)
            return true;
        (void)sched_yield();
    }
    const uint_least32_t seen = node->turn - 1;
    const struct timespec time = {.tv_sec = (time_t)slice,
                                  .tv_nsec = (long)((slice - (double)(time_t)slice) * 1e9)};
    (void)syscall(SYS_futex, &head->finished, FUTEX_WAIT, seen, &time, NULL, 0);
    return atomic_load_explicit(&head->finished, memory_order_acquire) == node->turn;
}

bool oct_node_entered(const oct_node *node, int member)
{
    return atomic_load_explicit(&head_of(node)->member[member].entered, memory_order_relaxed) ==
           node->turn;
}
