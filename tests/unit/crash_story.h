/* Saves with a fault at every single I/O call, and what a restart finds afterwards: whatever was
 * reported saved is there, to the bit. docs/spec/checkpoint.md has the protocol. */
#ifndef OCT_TESTS_CRASH_STORY_H
#define OCT_TESTS_CRASH_STORY_H

#include <malloc.h>
#include <pthread.h>

#include "checkpoint/checkpoint.h"
#include "comm/comm.h"
#include "crash_files.h"
#include "numeric/bf16.h"

/* Nested directories: a start makes more than one of them. */
static const char crash_root[] = "/runs/first/checkpoints";

/* A checkpoint by its step and by what it holds. */
typedef struct saved {
    int64_t step;
    uint32_t seed;
} saved;

/* A run so far: checkpoints reported saved, and one more save that a fault meets. */
typedef struct story {
    const char *name;
    int ranks;    /* that save, as threads of this process; 0: one without a comm */
    int64_t keep; /* keep_latest_k */
    saved before[3];
    int before_count;
    saved next;
} story;

/* --- what is saved ------------------------------------------------------------------------- */

enum { ROWS = 7, COLS = 5 };
static const int64_t crash_shape[2] = {ROWS, COLS};

/* Every number depends on `seed`, and no two seeds share one. */
static void fill(float out[ROWS * COLS], uint32_t seed)
{
    for (int i = 0; i < ROWS * COLS; i++)
        out[i] = (float)(1000 * seed + (uint32_t)i) * 0.1f;
}

/* Rows r*ROWS/R .. of two tensors, and what all ranks hold. */
static oct_status add_items(oct_item_list *list, int rank, int ranks, const float *weight,
                            uint32_t seed, oct_err *err)
{
    const int64_t begin = ROWS * rank / ranks, rows = ROWS * (rank + 1) / ranks - begin;
    const float *own = weight + begin * COLS;
    OCT_TRY(
        oct_item_add_shard(list, "weight", OCT_DTYPE_BF16, 2, crash_shape, begin, rows, own, err));
    OCT_TRY(
        oct_item_add_shard(list, "master", OCT_DTYPE_F32, 2, crash_shape, begin, rows, own, err));
    OCT_TRY(oct_item_add_tensor(list, "router", OCT_DTYPE_F32, 2, crash_shape, weight, err));
    return oct_item_add_int(list, "train_state", "seed", seed, err);
}

/* NULL if the checkpoint is that of `seed`; otherwise what is wrong. */
static const char *find_difference(const oct_checkpoint *cp, int64_t seed)
{
    float wanted[ROWS * COLS], master[ROWS * COLS], router[ROWS * COLS], weight[ROWS * COLS];
    oct_err err = {0};
    fill(wanted, (uint32_t)seed);
    if (oct_checkpoint_read_tensor(cp, "master", 2, crash_shape, master, &err) != OCT_OK ||
        oct_checkpoint_read_tensor(cp, "router", 2, crash_shape, router, &err) != OCT_OK ||
        oct_checkpoint_read_tensor(cp, "weight", 2, crash_shape, weight, &err) != OCT_OK)
        return "a tensor does not load";
    if (memcmp(master, wanted, sizeof wanted) != 0)
        return "another master";
    if (memcmp(router, wanted, sizeof wanted) != 0)
        return "another router";
    for (int i = 0; i < ROWS * COLS; i++)
        if (oct_f32_bits(weight[i]) != oct_f32_bits(oct_bf16_round(wanted[i])))
            return "another weight";
    return NULL;
}

/* --- processes ----------------------------------------------------------------------------- */

enum { MAX_RANKS = 4 };

/* Ranks start, save up to two steps and end. The fault meets the start or the first save. */
typedef struct process {
    crash_files *fs;
    int ranks;
    int64_t keep;
    const saved *saves;
    int save_count;
    bool has_started;
    oct_status status[2]; /* OCT_OK: the step was reported saved */
    oct_err err[2];
    bool differ; /* the ranks do not tell the same */
} process;

typedef struct process_rank {
    const process *all;
    oct_comm *comm; /* NULL: the only rank */
    bool has_started;
    oct_status status[2];
    oct_err err[2];
} process_rank;

static oct_status save_step(const process_rank *p, oct_checkpoint_writer *writer, const saved *next,
                            oct_err *err)
{
    static const oct_checkpoint_meta meta = {.config_hash = "00ff", .model_json = "{}"};
    float weight[ROWS * COLS];
    oct_item_list list;
    oct_item_list_init(&list);
    fill(weight, next->seed);
    oct_status status = add_items(&list, p->comm ? oct_comm_rank(p->comm) : 0,
                                  p->comm ? oct_comm_size(p->comm) : 1, weight, next->seed, err);
    if (status == OCT_OK)
        status = oct_checkpoint_save(writer, next->step, &list, &meta, err);
    oct_item_list_release(&list);
    return status;
}

/* No rank is in one save while another is in the next. */
static void end_of_fault(const process_rank *p)
{
    oct_err err = {0};
    if (p->comm && oct_comm_barrier(p->comm, &err) != OCT_OK)
        return;
    if (!p->comm || oct_comm_rank(p->comm) == 0)
        crash_files_forgive(p->all->fs);
    if (p->comm)
        (void)!oct_comm_barrier(p->comm, &err);
}

static void *run_rank(void *arg)
{
    process_rank *p = arg;
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.files = &p->all->fs->table,
                                            .comm = p->comm,
                                            .root = crash_root,
                                            .keep_latest_k = p->all->keep};
    p->status[0] = oct_checkpoint_writer_create(&options, &writer, &p->err[0]);
    p->has_started = p->status[0] == OCT_OK;
    if (p->has_started && p->all->save_count > 0)
        p->status[0] = save_step(p, writer, &p->all->saves[0], &p->err[0]);
    end_of_fault(p);
    p->status[1] = OCT_E_IO;
    if (p->has_started && p->all->save_count > 1)
        p->status[1] = save_step(p, writer, &p->all->saves[1], &p->err[1]);
    oct_checkpoint_writer_destroy(writer);
    oct_comm_destroy(p->comm);
    return NULL;
}

static void run_team(process *p, process_rank *ranks)
{
    const oct_comm_options options = {.timeout_seconds = 120.0, .piece_bytes = 4096};
    oct_comm *comms[MAX_RANKS] = {0};
    pthread_t threads[MAX_RANKS];
    oct_err err = {0};
    if (oct_comm_create_team(p->ranks, &options, comms, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    for (int r = 0; r < p->ranks; r++) {
        ranks[r] = (process_rank){.all = p, .comm = comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < p->ranks; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 1; r < p->ranks; r++)
        for (int i = 0; i < 2; i++)
            p->differ = p->differ || ranks[r].status[i] != ranks[0].status[i] ||
                        strcmp(ranks[r].err[i].msg, ranks[0].err[i].msg) != 0;
}

static void run(process *p)
{
    process_rank ranks[MAX_RANKS] = {{.all = p}};
    if (p->ranks > 0)
        run_team(p, ranks);
    else
        (void)run_rank(&ranks[0]);
    p->has_started = ranks[0].has_started;
    for (int i = 0; i < 2; i++) {
        p->status[i] = ranks[0].status[i];
        p->err[i] = ranks[0].err[i];
    }
}

/* A start without a save, of one rank: enough for what is on the disk. */
static oct_status start(crash_files *fs, int64_t keep, oct_err *err)
{
    process p = {.fs = fs, .keep = keep};
    run(&p);
    *err = p.err[0];
    return p.status[0];
}

/* --- the promise --------------------------------------------------------------------------- */

/* Where a check stands. */
typedef struct place {
    const story *story;
    crash_files *fs;
    bool next_is_hidden; /* its save was reported failed */
    char text[512];
} place;

static int64_t violations;

/* Counts and tells; the test goes on and fails at its end. */
static void violated(const place *at, const char *what, const char *detail)
{
    if (violations++ < 20)
        print_error("%s; %s: %s (%s)\n", at->story->name, at->text, what, detail);
}

static int note_leftover(void *arg, const char *name)
{
    if (oct_checkpoint_step_of_name(name) < 0)
        (void)snprintf(arg, CRASH_NAME_BYTES, "%s", name);
    return 0;
}

/* What a checkpoint that verifies has to be. */
static void check_contents(const place *at, const oct_checkpoint *cp)
{
    const story *s = at->story;
    const int64_t step = oct_checkpoint_step(cp);
    int64_t seed = -1;
    oct_err err = {0};
    if (oct_checkpoint_read_int(cp, "train_state.seed", &seed, &err) != OCT_OK) {
        violated(at, "a checkpoint verifies and does not load", err.msg);
        return;
    }
    bool is_known = step == s->next.step && seed == s->next.seed;
    for (int i = 0; i < s->before_count; i++)
        is_known = is_known || (step == s->before[i].step && seed == s->before[i].seed);
    const char *difference = is_known ? find_difference(cp, seed) : "nobody saved this";
    if (difference)
        violated(at, "a checkpoint verifies and holds something else", difference);
}

/* Every step-N on the disk. Returns how many are whole. */
static int check_each(const place *at, bool all_whole)
{
    oct_arena arena;
    int64_t *steps = NULL, count = 0;
    oct_err err = {0};
    int whole = 0;
    oct_arena_init(&arena, "test");
    if (oct_checkpoint_list(&at->fs->table, crash_root, &arena, &steps, &count, &err) != OCT_OK)
        violated(at, "no listing", err.msg);
    for (int64_t i = 0; i < count; i++) {
        oct_checkpoint *cp = NULL;
        if (oct_checkpoint_open_step(&at->fs->table, crash_root, steps[i], OCT_VERIFY_CRC, &cp,
                                     &err) == OCT_OK) {
            whole++;
            check_contents(at, cp);
            oct_checkpoint_close(cp);
        } else if (all_whole) {
            violated(at, "half a checkpoint is visible", err.msg);
        }
    }
    oct_arena_release(&arena);
    return whole;
}

/* The newest checkpoint that a resume takes. */
static void check_newest(const place *at, bool next_was_reported)
{
    const story *s = at->story;
    const saved *last = s->before_count > 0 ? &s->before[s->before_count - 1] : NULL;
    oct_checkpoint *cp = NULL;
    oct_err err = {0};
    char found[128] = "none";
    const oct_status status = oct_checkpoint_open_latest(&at->fs->table, crash_root, OCT_VERIFY_CRC,
                                                         NULL, NULL, &cp, &err);
    saved newest = {.step = -1};
    int64_t seed = 0;
    if (cp && oct_checkpoint_read_int(cp, "train_state.seed", &seed, &err) == OCT_OK) {
        newest = (saved){oct_checkpoint_step(cp), (uint32_t)seed};
        (void)snprintf(found, sizeof found, "step %lld of save %lld", (long long)newest.step,
                       (long long)seed);
    }
    const bool is_next = newest.step == s->next.step && newest.seed == s->next.seed;
    const bool is_last = last && newest.step == last->step && newest.seed == last->seed;
    /* With nothing reported there may be nothing, or one that nobody can use. */
    const bool is_nothing = !last && !cp;
    if (!is_next && (next_was_reported || !(is_last || is_nothing)))
        violated(at, "the newest is not what was reported", cp ? found : err.msg);
    if (is_next && at->next_is_hidden)
        violated(at, "a failed save is taken for a checkpoint", found);
    if (status != OCT_OK && last)
        violated(at, "no resume", err.msg);
    oct_checkpoint_close(cp);
}

/* A restart without faults: sweep, then look at everything. `all_whole`: what is visible has to
 * verify, even if it is not what a resume takes. */
static void check_restart(const place *at, bool next_was_reported, bool all_whole)
{
    oct_err err = {0};
    char leftover[CRASH_NAME_BYTES] = "";
    if (start(at->fs, at->story->keep, &err) != OCT_OK) {
        violated(at, "no start", err.msg);
        return;
    }
    if (oct_file_list(&at->fs->table, crash_root, note_leftover, leftover, &err) != OCT_OK)
        violated(at, "no listing", err.msg);
    if (leftover[0])
        violated(at, "the sweep leaves something", leftover);
    const int whole = check_each(at, all_whole);
    const int64_t keep = at->story->keep;
    int promised = at->story->before_count;
    if (keep > 0 && promised > keep)
        promised = (int)keep;
    if (whole < promised)
        violated(at, "older checkpoints are gone", "");
    check_newest(at, next_was_reported);
    if (at->fs->open_files != 0)
        violated(at, "a file stays open", "");
}

/* Another save, without a fault, and then the power goes: this one was reported. */
static void check_next_save(const place *at)
{
    story after = *at->story;
    crash_files fs;
    crash_files_copy(&fs, at->fs);
    place here = {.story = &after, .fs = &fs};
    (void)snprintf(here.text, sizeof here.text, "%.400s, the next save", at->text);
    after.before_count = 0;
    after.next = (saved){at->story->next.step + 1, 99};
    process p = {.fs = &fs, .keep = after.keep, .saves = &after.next, .save_count = 1};
    run(&p); /* one rank goes on with what several saved */
    if (p.status[0] != OCT_OK)
        violated(&here, "it fails", p.err[0].msg);
    crash_files_reboot(&fs, CRASH_LOSE_ALL, 0);
    check_newest(&here, true);
    crash_files_release(&fs);
}

/* --- every fault --------------------------------------------------------------------------- */

/* Sanitizers look for other things, and every arena costs them: a part of the points is enough. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SEEDS = 1, STRIDE = 17 };
#else
enum { SEEDS = 4, STRIDE = 1 };
#endif

static const struct {
    crash_mode mode;
    const char *name;
} modes[] = {{CRASH_KILL, "kill"},        {CRASH_TORN, "torn write"}, {CRASH_LOST, "lost data"},
             {CRASH_ENOSPC, "ENOSPC"},    {CRASH_FULL, "disk full"},  {CRASH_EIO, "EIO"},
             {CRASH_LATE, "EIO too late"}};
enum { MODES = sizeof modes / sizeof *modes };

static bool goes_on(crash_mode mode)
{
    return mode != CRASH_KILL && mode != CRASH_TORN && mode != CRASH_LOST;
}

/* What may be gone after a fault of this mode: a kill loses nothing, a power failure does. */
static bool can_lose(crash_mode mode, crash_loss loss)
{
    switch (mode) {
    case CRASH_KILL:
        return loss != CRASH_LOSE_SOME; /* the power fails later */
    case CRASH_TORN:
        return loss == CRASH_LOSE_SOME;
    case CRASH_LOST:
        return loss != CRASH_LOSE_NOTHING;
    case CRASH_NONE:
    case CRASH_ENOSPC:
    case CRASH_FULL:
    case CRASH_EIO:
    case CRASH_LATE:
        break;
    }
    return true;
}

/* A disk on which everything of `before` was reported saved. */
static void make_before(crash_files *fs, const story *s)
{
    crash_files_init(fs);
    fs->transfer_bytes = 3000;
    for (int i = 0; i < s->before_count; i++) {
        process p = {
            .fs = fs, .ranks = s->ranks, .keep = s->keep, .saves = &s->before[i], .save_count = 1};
        run(&p);
        if (p.status[0] != OCT_OK)
            fail_msg("%s", p.err[0].msg);
    }
    if (s->before_count > 0)
        crash_files_reboot(fs, CRASH_LOSE_ALL, 0);
}

/* Crashes a copy of `after` and restarts. */
static void crash_and_check(const place *after, crash_loss loss, uint64_t seed, bool reported,
                            bool all_whole)
{
    static const char *const losses[] = {"nothing", "everything", "something"};
    crash_files fs;
    crash_files_copy(&fs, after->fs);
    crash_files_reboot(&fs, loss, seed);
    place at = {.story = after->story,
                .fs = &fs,
                .next_is_hidden = after->next_is_hidden && loss == CRASH_LOSE_NOTHING};
    (void)snprintf(at.text, sizeof at.text, "%.400s, %s unsynced lost (%llu)", after->text,
                   losses[loss], (unsigned long long)seed);
    check_restart(&at, reported, all_whole);
    if (seed == 0 && STRIDE == 1)
        check_next_save(&at);
    crash_files_reboot(&fs, CRASH_LOSE_ALL, 0); /* what the restart itself left unsynced */
    if (STRIDE == 1)
        check_restart(&at, reported, all_whole);
    crash_files_release(&fs);
}

/* The process that saw the error lives and saves again. */
static void check_going_on(const story *s, const crash_files *before, int m, int64_t n)
{
    crash_files fs;
    story after = *s;
    after.before_count = 0;
    after.next = (saved){s->next.step + 1, 98};
    crash_files_copy(&fs, before);
    crash_files_arm(&fs, modes[m].mode, n);
    const saved saves[2] = {s->next, after.next};
    process p = {.fs = &fs, .ranks = s->ranks, .keep = s->keep, .saves = saves, .save_count = 2};
    run(&p);
    place at = {.story = &after, .fs = &fs};
    (void)snprintf(at.text, sizeof at.text, "%s at call %lld (%s), going on", modes[m].name,
                   (long long)n, fs.fault);
    if (p.differ)
        violated(&at, "the ranks tell different things", p.err[0].msg);
    if (p.has_started && p.status[1] != OCT_OK)
        violated(&at, "the next save fails", p.err[1].msg);
    crash_files_reboot(&fs, CRASH_LOSE_ALL, 0);
    if (p.has_started)
        check_newest(&at, true);
    crash_files_release(&fs);
}

/* A failed save has to say what failed. */
static void check_message(const place *at, crash_mode mode, const oct_err *err)
{
    if (!goes_on(mode))
        return; /* nobody is there to read it */
    const bool is_full = mode == CRASH_ENOSPC || mode == CRASH_FULL;
    if (!strstr(err->msg, "'/") ||
        !strstr(err->msg, is_full ? "No space left" : "Input/output error"))
        violated(at, "the error names no path or no reason", err->msg);
}

/* One mode, every call. Returns the number of fault points. */
static int64_t fail_each_call(const story *s, const crash_files *before, int m)
{
    const crash_mode mode = modes[m].mode;
    for (int64_t n = 1;; n += STRIDE) {
        crash_files fs;
        crash_files_copy(&fs, before);
        crash_files_arm(&fs, mode, n);
        process p = {
            .fs = &fs, .ranks = s->ranks, .keep = s->keep, .saves = &s->next, .save_count = 1};
        run(&p);
        const oct_status status = p.status[0];
        const bool reached = fs.fault[0];
        place at = {.story = s,
                    .fs = &fs,
                    .next_is_hidden = status != OCT_OK && goes_on(mode) && mode != CRASH_LATE};
        (void)snprintf(at.text, sizeof at.text, "%s at call %lld (%s)", modes[m].name, (long long)n,
                       fs.fault);
        if (status != OCT_OK)
            check_message(&at, mode, &p.err[0]);
        if (p.differ)
            violated(&at, "the ranks tell different things", p.err[0].msg);
        if (fs.open_files != 0)
            violated(&at, "a file stays open", "");
        if (goes_on(mode)) /* for who looks before any restart */
            check_newest(&at, status == OCT_OK);
        for (int loss = CRASH_LOSE_NOTHING; loss <= CRASH_LOSE_SOME; loss++)
            for (uint64_t seed = 0; seed < (loss == CRASH_LOSE_SOME ? SEEDS : 1); seed++)
                if (can_lose(mode, (crash_loss)loss))
                    crash_and_check(&at, (crash_loss)loss, seed, status == OCT_OK,
                                    !goes_on(mode) || loss != CRASH_LOSE_SOME);
        if (goes_on(mode))
            check_going_on(s, before, m, n);
        crash_files_release(&fs);
        if (!reached)
            return (n - 1) / STRIDE;
    }
}

/* Every mode at every call of one save. */
static void check_story(const story *s)
{
    crash_files before;
    int64_t points = 0;
    char line[256] = "";
    make_before(&before, s);
    violations = 0;
    for (int m = 0; m < MODES; m++) {
        const int64_t n = fail_each_call(s, &before, m);
        points += n;
        (void)snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s %lld", m ? ", " : "",
                       modes[m].name, (long long)n);
    }
    crash_files_release(&before);
    print_message("%s: %lld fault points (%s), %lld violations\n", s->name, (long long)points, line,
                  (long long)violations);
    assert_int_equal(violations, 0);
    assert_true(points >= 100 / STRIDE);
}

/* Arenas come and go by the thousand: let them stay on the heap. */
static void keep_heap(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 26);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 28);
}

#endif
