/* A file system in memory that knows what a crash takes away. Every file and directory has two
 * states: what the running system sees, and what the disk holds. A write reaches the disk with
 * fsync of its file; a name that was made, renamed or removed with fsync_dir of its directory.
 * Nothing else is promised, and crash_files_reboot takes back what was not. The n-th call can be
 * made to fail, or to be the one at which the process dies or the power goes. Any number of
 * threads. */
#ifndef OCT_TESTS_CRASH_FILES_H
#define OCT_TESTS_CRASH_FILES_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

typedef enum crash_mode {
    CRASH_NONE,
    CRASH_KILL,   /* the process dies before the call; the kernel lives */
    CRASH_TORN,   /* the power goes during the call: of a write, a part is on the disk */
    CRASH_LOST,   /* the power goes before the call */
    CRASH_ENOSPC, /* the call fails */
    CRASH_FULL,   /* from the call on, whatever needs room fails with ENOSPC */
    CRASH_EIO,    /* the call fails; after an fsync, the data is clean and not on the disk */
    CRASH_LATE    /* the call does its work and reports EIO */
} crash_mode;

/* What a crash leaves of the changes that were not synced. */
typedef enum crash_loss {
    CRASH_LOSE_NOTHING, /* only the process died */
    CRASH_LOSE_ALL,
    CRASH_LOSE_SOME /* by the seed: any part of a file's data, any operations of a directory whose
                       names no lost one touched, or the first few */
} crash_loss;

enum { CRASH_SECTOR_BYTES = 512, CRASH_NAME_BYTES = 128 };

typedef struct crash_entry {
    char name[CRASH_NAME_BYTES];
    int node;
} crash_entry;

typedef struct crash_entries {
    crash_entry *at;
    int count, capacity;
} crash_entries;

/* One change of a directory: `removed` (unless "") goes, `added` (unless "") comes. */
typedef struct crash_change {
    char removed[CRASH_NAME_BYTES], added[CRASH_NAME_BYTES];
    int node;
} crash_change;

typedef struct crash_node {
    bool is_dir;
    crash_entries seen, held; /* of a directory: as the system sees it, as the disk holds it */
    crash_change *changes;    /* since the last fsync_dir, in their order */
    int change_count, change_capacity;
    unsigned char *data, *disk; /* of a file */
    bool *dirty;                /* per sector: newer than the disk */
    size_t bytes, disk_bytes, capacity;
    bool torn; /* the write that the power failure met */
} crash_node;

typedef struct crash_handle {
    int node; /* -1: closed */
    bool writable;
} crash_handle;

typedef struct crash_files {
    oct_file_table table;
    pthread_mutex_t lock;
    crash_node **nodes; /* [0] is the root */
    int node_count, node_capacity;
    crash_handle *handles;
    int handle_count, handle_capacity, open_files;
    uint64_t free_bytes;
    size_t transfer_bytes; /* one read or write moves no more: more calls to fail */
    crash_mode mode;
    int64_t fail_at, calls; /* 1 = the first call */
    bool is_dead;           /* the process has no files any more */
    char fault[256];        /* operation and path that the fault met, "" if none */
} crash_files;

static inline crash_files *crash_self(const oct_file_table *self)
{
    return (crash_files *)(uintptr_t)self; /* the table is the first member */
}

/* `count` elements of `bytes` and room for one more. */
static inline void *crash_grow(void *array, int count, int *capacity, size_t bytes)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity * 2 + 8;
    void *grown = realloc(array, (size_t)*capacity * bytes);
    if (!grown)
        abort();
    return grown;
}

static inline uint32_t crash_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* --- directories --------------------------------------------------------------------------- */

static inline int crash_find(const crash_entries *entries, const char *name)
{
    for (int i = 0; i < entries->count; i++)
        if (strcmp(entries->at[i].name, name) == 0)
            return i;
    return -1;
}

/* The last entry takes the place of the removed one: listings have no useful order. */
static inline void crash_remove_entry(crash_entries *entries, const char *name)
{
    const int i = crash_find(entries, name);
    if (i >= 0)
        entries->at[i] = entries->at[--entries->count];
}

static inline void crash_apply(crash_entries *entries, const crash_change *change)
{
    if (change->removed[0])
        crash_remove_entry(entries, change->removed);
    if (!change->added[0])
        return;
    crash_remove_entry(entries, change->added);
    entries->at = crash_grow(entries->at, entries->count, &entries->capacity, sizeof *entries->at);
    crash_entry *entry = &entries->at[entries->count++];
    (void)snprintf(entry->name, sizeof entry->name, "%s", change->added);
    entry->node = change->node;
}

static inline void crash_change_dir(crash_node *dir, const char *removed, const char *added,
                                    int node)
{
    dir->changes =
        crash_grow(dir->changes, dir->change_count, &dir->change_capacity, sizeof *dir->changes);
    crash_change *change = &dir->changes[dir->change_count++];
    (void)snprintf(change->removed, sizeof change->removed, "%s", removed);
    (void)snprintf(change->added, sizeof change->added, "%s", added);
    change->node = node;
    crash_apply(&dir->seen, change);
}

static inline void crash_copy_entries(crash_entries *to, const crash_entries *from)
{
    to->count = 0;
    for (int i = 0; i < from->count; i++) {
        to->at = crash_grow(to->at, to->count, &to->capacity, sizeof *to->at);
        to->at[to->count++] = from->at[i];
    }
}

/* --- nodes and paths ----------------------------------------------------------------------- */

static inline int crash_new_node(crash_files *fs, bool is_dir)
{
    fs->nodes = crash_grow(fs->nodes, fs->node_count, &fs->node_capacity, sizeof(crash_node *));
    crash_node *node = calloc(1, sizeof *node);
    if (!node)
        abort();
    node->is_dir = is_dir;
    fs->nodes[fs->node_count] = node;
    return fs->node_count++;
}

/* The directory that holds the last name of `path`, and that name; or -errno. */
static inline int crash_parent(const crash_files *fs, const char *path, char name[CRASH_NAME_BYTES])
{
    int dir = 0;
    name[0] = '\0';
    for (const char *at = path + strspn(path, "/"); *at;) {
        const size_t length = strcspn(at, "/");
        if (length >= CRASH_NAME_BYTES)
            return -ENAMETOOLONG;
        if (name[0]) { /* the name before is not the last one */
            const int i = crash_find(&fs->nodes[dir]->seen, name);
            if (i < 0)
                return -ENOENT;
            dir = fs->nodes[dir]->seen.at[i].node;
            if (!fs->nodes[dir]->is_dir)
                return -ENOTDIR;
        }
        memcpy(name, at, length);
        name[length] = '\0';
        at += length;
        at += strspn(at, "/");
    }
    return dir;
}

/* The node of `path`, or -errno. */
static inline int crash_lookup(const crash_files *fs, const char *path)
{
    char name[CRASH_NAME_BYTES];
    const int dir = crash_parent(fs, path, name);
    if (dir < 0 || !name[0])
        return dir;
    const int i = crash_find(&fs->nodes[dir]->seen, name);
    return i < 0 ? -ENOENT : fs->nodes[dir]->seen.at[i].node;
}

/* --- the fault ----------------------------------------------------------------------------- */

typedef struct crash_fate {
    bool works; /* the call does what it is for */
    int error;  /* and returns this, unless 0 */
    bool torn;  /* the power goes while it works */
} crash_fate;

/* Every call begins here, with the lock held. */
static inline crash_fate crash_enter(crash_files *fs, const char *operation, const char *path,
                                     bool needs_room)
{
    fs->calls++;
    if (fs->is_dead)
        return (crash_fate){.error = -EIO};
    const bool is_hit =
        fs->mode == CRASH_FULL ? fs->calls >= fs->fail_at && needs_room : fs->calls == fs->fail_at;
    if (!is_hit || fs->mode == CRASH_NONE)
        return (crash_fate){.works = true};
    (void)snprintf(fs->fault, sizeof fs->fault, "%s %s", operation, path);
    switch (fs->mode) {
    case CRASH_NONE:
    case CRASH_KILL:
    case CRASH_LOST:
        fs->is_dead = true;
        break;
    case CRASH_TORN:
        fs->is_dead = true;
        return (crash_fate){.works = true, .error = -EIO, .torn = true};
    case CRASH_ENOSPC:
    case CRASH_FULL:
        return (crash_fate){.error = -ENOSPC};
    case CRASH_EIO:
        break;
    case CRASH_LATE:
        return (crash_fate){.works = true, .error = -EIO};
    }
    return (crash_fate){.error = -EIO};
}

/* The result of a call whose work gave `result`. */
static inline int crash_leave(crash_files *fs, crash_fate fate, int result)
{
    (void)pthread_mutex_unlock(&fs->lock);
    return fate.error ? fate.error : result;
}

/* --- files --------------------------------------------------------------------------------- */

static inline int crash_new_handle(crash_files *fs, int node, bool writable)
{
    fs->handles =
        crash_grow(fs->handles, fs->handle_count, &fs->handle_capacity, sizeof *fs->handles);
    fs->handles[fs->handle_count] = (crash_handle){.node = node, .writable = writable};
    fs->open_files++;
    return fs->handle_count++;
}

static inline int crash_open(const oct_file_table *self, const char *path)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "open", path, false);
    int result = 0;
    if (fate.works && !fate.error) {
        result = crash_lookup(fs, path);
        if (result >= 0)
            result = fs->nodes[result]->is_dir ? -EISDIR : crash_new_handle(fs, result, false);
    }
    return crash_leave(fs, fate, result);
}

/* A new file or directory: its node, or what is wrong. */
static inline int crash_make(crash_files *fs, const char *path, bool is_dir)
{
    char name[CRASH_NAME_BYTES];
    const int dir = crash_parent(fs, path, name);
    if (dir < 0)
        return dir;
    if (!name[0] || crash_find(&fs->nodes[dir]->seen, name) >= 0)
        return -EEXIST;
    const int node = crash_new_node(fs, is_dir);
    crash_change_dir(fs->nodes[dir], "", name, node);
    return node;
}

static inline int crash_create(const oct_file_table *self, const char *path)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "create", path, true);
    int result = 0;
    if (fate.works) {
        result = crash_make(fs, path, false);
        if (result >= 0) /* after an error the caller has no handle to close */
            result = fate.error ? 0 : crash_new_handle(fs, result, true);
    }
    return crash_leave(fs, fate, result);
}

/* NULL: closed, or not opened for this. */
static inline crash_node *crash_node_of(crash_files *fs, int file, bool writing)
{
    const bool is_open = file >= 0 && file < fs->handle_count && fs->handles[file].node >= 0;
    return is_open && fs->handles[file].writable == writing ? fs->nodes[fs->handles[file].node]
                                                            : NULL;
}

static inline int64_t crash_pread(const oct_file_table *self, int file, void *data, size_t bytes,
                                  uint64_t offset)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "pread", "", false);
    const crash_node *node = crash_node_of(fs, file, false);
    int result = -EBADF;
    if (node) {
        const uint64_t left = offset < node->bytes ? node->bytes - offset : 0;
        const size_t wanted = bytes < fs->transfer_bytes ? bytes : fs->transfer_bytes;
        const size_t n = wanted < left ? wanted : (size_t)left;
        if (n > 0 && !fate.error)
            memcpy(data, node->data + offset, n);
        result = (int)n;
    }
    return crash_leave(fs, fate, result);
}

static inline void crash_reserve(crash_node *node, size_t bytes)
{
    if (bytes <= node->capacity)
        return;
    const size_t capacity = (bytes * 2 / CRASH_SECTOR_BYTES + 1) * CRASH_SECTOR_BYTES;
    node->data = realloc(node->data, capacity);
    node->disk = realloc(node->disk, capacity);
    node->dirty = realloc(node->dirty, capacity / CRASH_SECTOR_BYTES * sizeof *node->dirty);
    if (!node->data || !node->disk || !node->dirty)
        abort();
    memset(node->data + node->capacity, 0, capacity - node->capacity);
    memset(node->disk + node->capacity, 0, capacity - node->capacity);
    for (size_t s = node->capacity / CRASH_SECTOR_BYTES; s < capacity / CRASH_SECTOR_BYTES; s++)
        node->dirty[s] = false;
    node->capacity = capacity;
}

static inline int64_t crash_pwrite(const oct_file_table *self, int file, const void *data,
                                   size_t bytes, uint64_t offset)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "pwrite", "", true);
    bytes = bytes < fs->transfer_bytes ? bytes : fs->transfer_bytes;
    crash_node *node = crash_node_of(fs, file, true);
    if (node && fate.works && bytes > 0) {
        const size_t end = (size_t)offset + bytes;
        crash_reserve(node, end);
        memcpy(node->data + offset, data, bytes);
        for (size_t s = (size_t)offset / CRASH_SECTOR_BYTES; s * CRASH_SECTOR_BYTES < end; s++)
            node->dirty[s] = true;
        node->bytes = end > node->bytes ? end : node->bytes;
        node->torn = fate.torn;
    }
    return crash_leave(fs, fate, node ? (int)bytes : -EBADF);
}

static inline int crash_fsync(const oct_file_table *self, int file)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "fsync", "", false);
    crash_node *node = crash_node_of(fs, file, true);
    if (node && !fs->is_dead) {
        for (size_t s = 0; s < node->capacity / CRASH_SECTOR_BYTES; s++) {
            if (node->dirty[s] && fate.works)
                memcpy(node->disk + s * CRASH_SECTOR_BYTES, node->data + s * CRASH_SECTOR_BYTES,
                       CRASH_SECTOR_BYTES);
            node->dirty[s] = false; /* also if that failed: Linux tries a page once */
        }
        if (fate.works)
            node->disk_bytes = node->bytes;
    }
    return crash_leave(fs, fate, node ? 0 : -EBADF);
}

/* The handle is gone whatever close reports. */
static inline int crash_close(const oct_file_table *self, int file)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "close", "", false);
    const bool is_open = file >= 0 && file < fs->handle_count && fs->handles[file].node >= 0;
    if (is_open) {
        fs->handles[file].node = -1;
        fs->open_files--;
    }
    return crash_leave(fs, fate, is_open ? 0 : -EBADF);
}

/* --- names --------------------------------------------------------------------------------- */

static inline int crash_move(crash_files *fs, const char *from, const char *to, bool may_replace)
{
    char old[CRASH_NAME_BYTES], new[CRASH_NAME_BYTES];
    const int dir = crash_parent(fs, from, old), target = crash_parent(fs, to, new);
    if (dir < 0 || target < 0)
        return dir < 0 ? dir : target;
    if (dir != target)
        return -EXDEV; /* nobody here moves between directories */
    crash_node *parent = fs->nodes[dir];
    const int at = crash_find(&parent->seen, old), other = crash_find(&parent->seen, new);
    if (at < 0)
        return -ENOENT;
    if (other >= 0 && !may_replace)
        return -EEXIST;
    const int node = parent->seen.at[at].node;
    if (other >= 0 && (fs->nodes[node]->is_dir || fs->nodes[parent->seen.at[other].node]->is_dir))
        return -EISDIR;
    crash_change_dir(parent, old, new, node);
    return 0;
}

static inline int crash_rename(const oct_file_table *self, const char *from, const char *to)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "rename", from, false);
    return crash_leave(fs, fate, fate.works ? crash_move(fs, from, to, true) : 0);
}

static inline int crash_rename_new(const oct_file_table *self, const char *from, const char *to)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "rename_new", from, false);
    return crash_leave(fs, fate, fate.works ? crash_move(fs, from, to, false) : 0);
}

/* unlink and rmdir. */
static inline int crash_drop(crash_files *fs, const char *path, bool is_dir)
{
    char name[CRASH_NAME_BYTES];
    const int dir = crash_parent(fs, path, name), node = crash_lookup(fs, path);
    if (node < 0)
        return node;
    if (fs->nodes[node]->is_dir != is_dir)
        return is_dir ? -ENOTDIR : -EISDIR;
    if (node == 0 || fs->nodes[node]->seen.count > 0)
        return -ENOTEMPTY;
    crash_change_dir(fs->nodes[dir], name, "", node);
    return 0;
}

static inline int crash_unlink(const oct_file_table *self, const char *path)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "unlink", path, false);
    return crash_leave(fs, fate, fate.works ? crash_drop(fs, path, false) : 0);
}

static inline int crash_rmdir(const oct_file_table *self, const char *path)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "rmdir", path, false);
    return crash_leave(fs, fate, fate.works ? crash_drop(fs, path, true) : 0);
}

static inline int crash_mkdir(const oct_file_table *self, const char *path)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "mkdir", path, true);
    const int result = fate.works ? crash_make(fs, path, true) : 0;
    return crash_leave(fs, fate, result < 0 ? result : 0);
}

static inline int crash_fsync_dir(const oct_file_table *self, const char *path)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "fsync_dir", path, false);
    const int at = crash_lookup(fs, path);
    if (at >= 0 && fs->nodes[at]->is_dir && fate.works && !fs->is_dead) {
        crash_node *dir = fs->nodes[at];
        crash_copy_entries(&dir->held, &dir->seen);
        dir->change_count = 0;
    }
    return crash_leave(fs, fate, at < 0 ? at : fs->nodes[at]->is_dir ? 0 : -ENOTDIR);
}

/* The visitor runs without the lock, over the names as they were. */
static inline int crash_list(const oct_file_table *self, const char *path, oct_file_visitor visit,
                             void *arg)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "list", path, false);
    const int at = crash_lookup(fs, path);
    crash_entries names = {0};
    if (at >= 0 && fs->nodes[at]->is_dir)
        crash_copy_entries(&names, &fs->nodes[at]->seen);
    int result = crash_leave(fs, fate, at < 0 ? at : 0);
    for (int i = 0; i < names.count && result == 0; i++)
        result = visit(arg, names.at[i].name);
    free(names.at);
    return result;
}

static inline int crash_stat(const oct_file_table *self, const char *path, oct_file_info *info)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "stat", path, false);
    const int at = crash_lookup(fs, path);
    *info = (oct_file_info){.kind = OCT_FILE_NONE};
    if (at >= 0 && !fate.error)
        *info =
            (oct_file_info){.kind = fs->nodes[at]->is_dir ? OCT_FILE_DIRECTORY : OCT_FILE_REGULAR,
                            .bytes = fs->nodes[at]->bytes};
    return crash_leave(fs, fate, 0);
}

static inline int crash_free_space(const oct_file_table *self, const char *path, uint64_t *bytes)
{
    crash_files *fs = crash_self(self);
    (void)pthread_mutex_lock(&fs->lock);
    const crash_fate fate = crash_enter(fs, "free_space", path, false);
    *bytes = fs->free_bytes;
    return crash_leave(fs, fate, 0);
}

/* --- life ---------------------------------------------------------------------------------- */

/* An empty root directory. */
static inline void crash_files_init(crash_files *fs)
{
    *fs = (crash_files){.table = {.open = crash_open,
                                  .create = crash_create,
                                  .pread = crash_pread,
                                  .pwrite = crash_pwrite,
                                  .fsync = crash_fsync,
                                  .close = crash_close,
                                  .rename = crash_rename,
                                  .rename_new = crash_rename_new,
                                  .unlink = crash_unlink,
                                  .mkdir = crash_mkdir,
                                  .rmdir = crash_rmdir,
                                  .fsync_dir = crash_fsync_dir,
                                  .list = crash_list,
                                  .stat = crash_stat,
                                  .free_space = crash_free_space},
                        .free_bytes = (uint64_t)1 << 40,
                        .transfer_bytes = 1 << 20};
    (void)pthread_mutex_init(&fs->lock, NULL);
    (void)crash_new_node(fs, true);
}

static inline void crash_files_release(crash_files *fs)
{
    for (int i = 0; i < fs->node_count; i++) {
        crash_node *node = fs->nodes[i];
        free(node->seen.at);
        free(node->held.at);
        free(node->changes);
        free(node->data);
        free(node->disk);
        free(node->dirty);
        free(node);
    }
    free(fs->nodes);
    free(fs->handles);
    (void)pthread_mutex_destroy(&fs->lock);
}

/* The same files in the same two states, no open handle and no fault. */
static inline void crash_files_copy(crash_files *to, const crash_files *from)
{
    crash_files_init(to);
    to->free_bytes = from->free_bytes;
    to->transfer_bytes = from->transfer_bytes;
    for (int i = 0; i < from->node_count; i++) {
        const crash_node *old = from->nodes[i];
        if (i > 0)
            (void)crash_new_node(to, old->is_dir);
        crash_node *node = to->nodes[i];
        crash_copy_entries(&node->seen, &old->seen);
        crash_copy_entries(&node->held, &old->held);
        for (int c = 0; c < old->change_count; c++) {
            node->changes = crash_grow(node->changes, node->change_count, &node->change_capacity,
                                       sizeof *node->changes);
            node->changes[node->change_count++] = old->changes[c];
        }
        if (old->capacity == 0)
            continue;
        crash_reserve(node, old->bytes);
        memcpy(node->data, old->data, old->bytes);
        memcpy(node->disk, old->disk, old->bytes);
        for (size_t s = 0; s * CRASH_SECTOR_BYTES < old->bytes; s++)
            node->dirty[s] = old->dirty[s];
        node->bytes = old->bytes;
        node->disk_bytes = old->disk_bytes;
        node->torn = old->torn;
    }
}

static inline void crash_files_arm(crash_files *fs, crash_mode mode, int64_t fail_at)
{
    fs->mode = mode;
    fs->fail_at = fail_at;
    fs->calls = 0;
    fs->fault[0] = '\0';
}

/* No fault from here on, unless the process is dead. */
static inline void crash_files_forgive(crash_files *fs)
{
    (void)pthread_mutex_lock(&fs->lock);
    fs->mode = CRASH_NONE;
    (void)pthread_mutex_unlock(&fs->lock);
}

/* --- the crash ----------------------------------------------------------------------------- */

/* Which of the unsynced bytes of one file are on the disk. */
static inline void crash_lose_data(crash_node *node, bool keep_some, uint64_t *seed)
{
    enum { NOTHING, SIZE_ONLY, PREFIX, SECTORS, EVERYTHING, FATES };
    int fate = keep_some ? (int)(crash_random(seed) % FATES) : NOTHING;
    if (node->torn && keep_some) /* part of it, by definition */
        fate = crash_random(seed) % 2 ? PREFIX : SECTORS;
    const size_t prefix =
        node->bytes > 0 ? (size_t)crash_random(seed) % node->bytes : 0; /* in bytes */
    for (size_t s = 0; s * CRASH_SECTOR_BYTES < node->bytes; s++) {
        const size_t at = s * CRASH_SECTOR_BYTES;
        if (!node->dirty[s])
            continue;
        size_t n = 0;
        if (fate == EVERYTHING || (fate == SECTORS && crash_random(seed) % 2))
            n = CRASH_SECTOR_BYTES;
        else if (fate == PREFIX && at < prefix)
            n = prefix - at < CRASH_SECTOR_BYTES ? prefix - at : CRASH_SECTOR_BYTES;
        memcpy(node->disk + at, node->data + at, n);
        node->dirty[s] = false;
    }
    if (fate == PREFIX && prefix > node->disk_bytes)
        node->disk_bytes = prefix;
    else if (fate != NOTHING && fate != PREFIX)
        node->disk_bytes = node->bytes;
    node->torn = false;
    node->bytes = node->disk_bytes;
    if (node->capacity == 0)
        return;
    memset(node->disk + node->disk_bytes, 0, node->capacity - node->disk_bytes);
    memcpy(node->data, node->disk, node->capacity);
}

static inline bool crash_share_a_name(const crash_change *a, const crash_change *b)
{
    const char *const left[2] = {a->removed, a->added}, *const right[2] = {b->removed, b->added};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (left[i][0] && strcmp(left[i], right[j]) == 0)
                return true;
    return false;
}

/* Which of the unsynced changes of one directory are on the disk. */
static inline void crash_lose_names(crash_node *dir, bool keep_some, uint64_t *seed)
{
    const bool in_order = crash_random(seed) % 2; /* as a journal would */
    const int first = (int)(crash_random(seed) % (uint32_t)(dir->change_count + 1));
    bool *kept = calloc((size_t)dir->change_count + 1, sizeof *kept);
    if (!kept)
        abort();
    for (int c = 0; c < dir->change_count && keep_some; c++) {
        kept[c] = in_order ? c < first : crash_random(seed) % 2;
        for (int earlier = 0; earlier < c && kept[c]; earlier++)
            kept[c] =
                kept[earlier] || !crash_share_a_name(&dir->changes[earlier], &dir->changes[c]);
        if (kept[c])
            crash_apply(&dir->held, &dir->changes[c]);
    }
    free(kept);
    dir->change_count = 0;
    crash_copy_entries(&dir->seen, &dir->held);
}

/* The machine, or with LOSE_NOTHING only the process, starts again: no open file, no fault. */
static inline void crash_files_reboot(crash_files *fs, crash_loss loss, uint64_t seed)
{
    for (int i = 0; i < fs->node_count && loss != CRASH_LOSE_NOTHING; i++)
        if (fs->nodes[i]->is_dir)
            crash_lose_names(fs->nodes[i], loss == CRASH_LOSE_SOME, &seed);
        else
            crash_lose_data(fs->nodes[i], loss == CRASH_LOSE_SOME, &seed);
    fs->handle_count = fs->open_files = 0;
    fs->is_dead = false;
    crash_files_arm(fs, CRASH_NONE, 0);
}

#endif
