#include "data/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "data/file_io.h"
#include "numeric/bf16.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are swapped for big endian");

enum {
    PREAMBLE_BYTES = 12,    /* magic, version, length of the header (2 or 4 bytes) */
    HEADER_LIMIT = 1 << 16, /* a header of the dtypes understood here has about 100 bytes */
    STREAM_STEP = 1 << 20
};

static const struct {
    const char *code, *name;
    size_t bytes;
} dtypes[] = {[OCT_NPY_U8] = {"u1", "uint8", 1},
              [OCT_NPY_U16] = {"u2", "uint16", 2},
              [OCT_NPY_F16] = {"f2", "float16", 2},
              [OCT_NPY_F32] = {"f4", "float32", 4},
              [OCT_NPY_F64] = {"f8", "float64", 8}};
enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

size_t oct_npy_dtype_bytes(oct_npy_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *oct_npy_dtype_name(oct_npy_dtype dtype)
{
    return dtypes[dtype].name;
}

const char *oct_npy_shape_text(const oct_npy_shape *shape, char text[200])
{
    size_t used = 0;
    text[used++] = '[';
    for (int d = 0; d < shape->ndim; d++)
        used += (size_t)snprintf(text + used, 200 - used, d ? ", %lld" : "%lld",
                                 (long long)shape->dims[d]);
    text[used++] = ']';
    text[used] = '\0';
    return text;
}

bool oct_npy_shape_equal(const oct_npy_shape *a, const oct_npy_shape *b)
{
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Product of the dims, and that times the size of an element, in int64_t. */
static bool shape_count(const oct_npy_shape *shape, size_t element_bytes, int64_t *count)
{
    int64_t n = 1, bytes = 0;
    bool empty = false;
    for (int d = 0; d < shape->ndim; d++)
        empty |= shape->dims[d] == 0;
    for (int d = 0; !empty && d < shape->ndim; d++)
        if (__builtin_mul_overflow(n, shape->dims[d], &n))
            return false;
    *count = empty ? 0 : n;
    return !__builtin_mul_overflow(*count, (int64_t)element_bytes, &bytes);
}

/* --- the header: a Python dictionary literal with three keys ---------------------------------- */

typedef struct header {
    const char *path;
    const char *at, *end;
    oct_err *err;
} header;

static oct_status bad(header *h, const char *required)
{
    char found[24] = {0};
    size_t length = (size_t)(h->end - h->at);
    length = length < sizeof found - 1 ? length : sizeof found - 1;
    for (size_t i = 0; i < length; i++)
        found[i] = h->at[i] >= ' ' && h->at[i] <= '~' ? h->at[i] : '?';
    return OCT_FAIL(h->err, OCT_E_DATA, "wrong NPY header: found '%s', %s is required (%s)", found,
                    required, name_of(h->path));
}

static void skip_space(header *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t'))
        h->at++;
}

static bool take(header *h, const char *word)
{
    skip_space(h);
    const size_t length = strlen(word);
    if ((size_t)(h->end - h->at) < length || memcmp(h->at, word, length) != 0)
        return false;
    h->at += length;
    return true;
}

static oct_status take_string(header *h, char *out, size_t room)
{
    skip_space(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"'))
        return bad(h, "a string (structured dtypes are not read)");
    const char quote = *h->at;
    const char *close = memchr(h->at + 1, quote, (size_t)(h->end - h->at - 1));
    if (!close || (size_t)(close - h->at) > room)
        return bad(h, "a short string");
    const size_t length = (size_t)(close - h->at - 1);
    memcpy(out, h->at + 1, length);
    out[length] = '\0';
    h->at = close + 1;
    return OCT_OK;
}

static oct_status take_shape(header *h, oct_npy_shape *shape)
{
    *shape = (oct_npy_shape){0};
    if (!take(h, "("))
        return bad(h, "a tuple of dims");
    while (!take(h, ")")) {
        if (shape->ndim == OCT_NPY_MAX_NDIM)
            return bad(h, "a tuple of at most 8 dims");
        int64_t dim = 0;
        const char *first = h->at;
        for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
            if (__builtin_mul_overflow(dim, 10, &dim) ||
                __builtin_add_overflow(dim, *h->at - '0', &dim))
                return bad(h, "a dim below 2^63");
        if (h->at == first)
            return bad(h, "a dim");
        shape->dims[shape->ndim++] = dim;
        if (!take(h, ",")) {
            if (!take(h, ")") || shape->ndim == 1)
                return bad(h, "',' after a dim");
            return OCT_OK;
        }
    }
    return OCT_OK;
}

static oct_status set_dtype(oct_npy *npy, const char *descr, oct_err *err)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const bool prefixed = descr[0] == '<' || descr[0] == '>' || descr[0] == '|';
        const bool swappable = dtypes[i].bytes > 1;
        if (prefixed && strcmp(descr + 1, dtypes[i].code) == 0 &&
            (swappable ? descr[0] != '|' : true)) {
            npy->dtype = (oct_npy_dtype)i;
            npy->big_endian = descr[0] == '>';
            return OCT_OK;
        }
    }
    return OCT_FAIL(err, OCT_E_DATA,
                    "cannot read the dtype of an NPY file: found '%s', one of f2, f4, f8, u1, u2 "
                    "is required (%s)",
                    descr, name_of(npy->path));
}

static oct_status parse_header(oct_npy *npy, const char *text, size_t bytes, oct_err *err)
{
    header h = {.path = npy->path, .at = text, .end = text + bytes, .err = err};
    enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };
    int seen = 0;
    char descr[32] = "", key[32];
    if (!take(&h, "{"))
        return bad(&h, "'{'");
    while (!take(&h, "}")) {
        OCT_TRY(take_string(&h, key, sizeof key));
        if (!take(&h, ":"))
            return bad(&h, "':'");
        int member = 0;
        if (strcmp(key, "descr") == 0) {
            member = DESCR;
            OCT_TRY(take_string(&h, descr, sizeof descr));
        } else if (strcmp(key, "fortran_order") == 0) {
            member = ORDER;
            npy->fortran = take(&h, "True");
            if (!npy->fortran && !take(&h, "False"))
                return bad(&h, "True or False");
        } else if (strcmp(key, "shape") == 0) {
            member = SHAPE;
            OCT_TRY(take_shape(&h, &npy->shape));
        }
        if (member == 0 || seen & member)
            return bad(&h, "descr, fortran_order and shape, each once,");
        seen |= member;
        if (!take(&h, ",")) {
            if (!take(&h, "}"))
                return bad(&h, "',' or '}'");
            break;
        }
    }
    if (seen != ALL)
        return bad(&h, "descr, fortran_order and shape, each once,");
    skip_space(&h);
    if (h.at != h.end)
        return bad(&h, "the end of the header");
    return set_dtype(npy, descr, err);
}

/* What follows the magic: version and length of the header text. */
static oct_status parse_preamble(const char *path, const unsigned char *bytes, size_t have,
                                 size_t *start, size_t *length, oct_err *err)
{
    if (have < PREAMBLE_BYTES || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read an NPY file: its first bytes are not \\x93NUMPY, an NPY file "
                        "is required (%s)",
                        name_of(path));
    const unsigned major = bytes[6];
    if (major < 1 || major > 3 || bytes[7] != 0)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read an NPY file: found version %u.%u, 1.0, 2.0 or 3.0 is required "
                        "(%s)",
                        major, bytes[7], name_of(path));
    *start = major == 1 ? 10 : 12;
    *length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1)
        *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (*length > HEADER_LIMIT)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read an NPY file: its header has %zu bytes, at most %d are allowed "
                        "(%s)",
                        *length, HEADER_LIMIT, name_of(path));
    return OCT_OK;
}

/* Header and size, once all of the header is in memory; file_bytes is the length of the file. */
static oct_status check_file(oct_npy *npy, const unsigned char *head, size_t have,
                             int64_t file_bytes, oct_err *err)
{
    size_t start = 0, length = 0;
    OCT_TRY(parse_preamble(npy->path, head, have, &start, &length, err));
    if (start + length > have)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read an NPY file: it ends after %lld bytes, %zu of header are "
                        "required (%s)",
                        (long long)file_bytes, start + length, name_of(npy->path));
    OCT_TRY(parse_header(npy, (const char *)head + start, length, err));
    npy->offset = (int64_t)(start + length);
    const size_t size = dtypes[npy->dtype].bytes;
    char text[200];
    if (!shape_count(&npy->shape, size, &npy->count))
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read an NPY file: shape %s has more than 2^63 bytes, fewer are "
                        "required (%s)",
                        oct_npy_shape_text(&npy->shape, text), name_of(npy->path));
    const int64_t wanted = npy->count * (int64_t)size;
    if (file_bytes - npy->offset != wanted)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read an NPY file: it holds %lld bytes of elements, %lld are "
                        "required by %s %s (%s)",
                        (long long)(file_bytes - npy->offset), (long long)wanted,
                        dtypes[npy->dtype].name, oct_npy_shape_text(&npy->shape, text),
                        name_of(npy->path));
    return OCT_OK;
}

static oct_status no_memory(const char *path, size_t bytes, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_NOMEM,
                    "cannot hold an NPY file in memory: %zu bytes are required (%s)", bytes,
                    name_of(path));
}

/* A pipe: all of it. On success *bytes is the caller's. */
static oct_status read_stream(const char *path, int fd, unsigned char **bytes, size_t *have,
                              oct_err *err)
{
    unsigned char *all = NULL;
    size_t used = 0, room = 0;
    for (;;) {
        if (room - used < STREAM_STEP) {
            room = room ? 2 * room : 2 * (size_t)STREAM_STEP;
            unsigned char *grown = realloc(all, room);
            if (!grown) {
                free(all);
                return no_memory(path, room, err);
            }
            all = grown;
        }
        const ssize_t got = read(fd, all + used, STREAM_STEP);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(all);
            return OCT_FAIL(err, OCT_E_DATA, "cannot read an NPY file: %s (%s)", strerror(errno),
                            name_of(path));
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *bytes = all;
    *have = used;
    return OCT_OK;
}

static oct_status open_stream(oct_npy *npy, int fd, oct_err *err)
{
    size_t have = 0;
    OCT_TRY(read_stream(npy->path, fd, &npy->bytes, &have, err));
    OCT_TRY(check_file(npy, npy->bytes, have, (int64_t)have, err));
    memmove(npy->bytes, npy->bytes + npy->offset, have - (size_t)npy->offset);
    return OCT_OK;
}

static oct_status open_regular(oct_npy *npy, int64_t file_bytes, oct_err *err)
{
    static const size_t limit = PREAMBLE_BYTES + HEADER_LIMIT;
    const size_t have = file_bytes < (int64_t)limit ? (size_t)file_bytes : limit;
    unsigned char *head = malloc(have + 1);
    if (!head)
        return no_memory(npy->path, have, err);
    oct_status status = oct_data_read_at(npy->fd, npy->path, 0, head, have, err);
    if (status == OCT_OK)
        status = check_file(npy, head, have, file_bytes, err);
    free(head);
    if (status != OCT_OK || !npy->fortran)
        return status;
    /* A line of a Fortran file is spread over all of it. */
    const size_t bytes = (size_t)npy->count * dtypes[npy->dtype].bytes;
    npy->bytes = malloc(bytes + 1);
    if (!npy->bytes)
        return no_memory(npy->path, bytes, err);
    return oct_data_read_at(npy->fd, npy->path, npy->offset, npy->bytes, bytes, err);
}

oct_status oct_npy_open(const char *path, oct_npy *out, oct_err *err)
{
    const bool standard = strcmp(path, "-") == 0;
    *out = (oct_npy){.path = path, .fd = -1};
    const int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        const int code = errno;
        if (fd >= 0 && !standard)
            (void)close(fd);
        return OCT_FAIL(err, OCT_E_DATA, "cannot open an NPY file: %s (%s)", strerror(code),
                        name_of(path));
    }
    oct_status status = OCT_OK;
    if (S_ISDIR(about.st_mode)) {
        status = OCT_FAIL(err, OCT_E_DATA,
                          "cannot open an NPY file: found a directory, a file is required (%s)",
                          name_of(path));
    } else if (standard || !S_ISREG(about.st_mode)) {
        status = open_stream(out, fd, err);
    } else {
        out->fd = fd;
        status = open_regular(out, (int64_t)about.st_size, err);
    }
    if (out->fd < 0 && !standard)
        (void)close(fd);
    if (status != OCT_OK)
        oct_npy_close(out);
    return status;
}

void oct_npy_close(oct_npy *npy)
{
    if (npy->path && npy->fd >= 0)
        (void)close(npy->fd);
    free(npy->bytes);
    *npy = (oct_npy){.fd = -1};
}

/* --- elements --------------------------------------------------------------------------------- */

/* C-order elements of a Fortran file, which is in memory. */
static void gather(const oct_npy *npy, int64_t first, int64_t count, unsigned char *out)
{
    const size_t size = dtypes[npy->dtype].bytes;
    const oct_npy_shape *shape = &npy->shape;
    int64_t index[OCT_NPY_MAX_NDIM], stride[OCT_NPY_MAX_NDIM];
    int64_t rest = first, at = 0, step = 1;
    for (int d = 0; d < shape->ndim; d++) {
        stride[d] = step;
        step *= shape->dims[d];
    }
    for (int d = shape->ndim - 1; d >= 0; d--) {
        index[d] = rest % shape->dims[d];
        rest /= shape->dims[d];
        at += index[d] * stride[d];
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(out + (size_t)i * size, npy->bytes + (size_t)at * size, size);
        for (int d = shape->ndim - 1; d >= 0; d--) { /* the next index, last dim fastest */
            at += stride[d];
            if (++index[d] < shape->dims[d])
                break;
            at -= index[d] * stride[d];
            index[d] = 0;
        }
    }
}

static void swap_bytes(unsigned char *bytes, int64_t count, size_t size)
{
    for (int64_t i = 0; i < count; i++, bytes += size)
        for (size_t low = 0, high = size - 1; low < high; low++, high--) {
            const unsigned char byte = bytes[low];
            bytes[low] = bytes[high];
            bytes[high] = byte;
        }
}

oct_status oct_npy_read(const oct_npy *npy, int64_t first, int64_t count, void *out, oct_err *err)
{
    if (first < 0 || count < 0 || first > npy->count || count > npy->count - first)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot read %lld elements from number %lld on: %lld exist, no more can be "
                        "read (%s)",
                        (long long)count, (long long)first, (long long)npy->count,
                        name_of(npy->path));
    const size_t size = dtypes[npy->dtype].bytes, bytes = (size_t)count * size;
    if (count == 0)
        return OCT_OK;
    if (npy->fortran)
        gather(npy, first, count, out);
    else if (npy->bytes)
        memcpy(out, npy->bytes + (size_t)first * size, bytes);
    else
        OCT_TRY(oct_data_read_at(npy->fd, npy->path, npy->offset + first * (int64_t)size, out,
                                 bytes, err));
    if (npy->big_endian)
        swap_bytes(out, count, size);
    return OCT_OK;
}

/* IEEE binary16, exact. */
static double value_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x;
    if (exponent == 31)
        x = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        x = ldexp(fraction, -24);
    else
        x = ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -x : x;
}

double oct_npy_value(oct_npy_dtype dtype, bool bf16, const void *elements, int64_t index)
{
    const size_t size = dtypes[dtype].bytes;
    const unsigned char *at = (const unsigned char *)elements + (size_t)index * size;
    uint16_t half;
    float single;
    double value = 0.0;
    switch (dtype) {
    case OCT_NPY_U8:
        return *at;
    case OCT_NPY_U16:
        memcpy(&half, at, sizeof half);
        return bf16 ? (double)oct_bf16_to_f32(half) : half;
    case OCT_NPY_F16:
        memcpy(&half, at, sizeof half);
        return value_f16(half);
    case OCT_NPY_F32:
        memcpy(&single, at, sizeof single);
        return (double)single;
    case OCT_NPY_F64:
        memcpy(&value, at, sizeof value);
        break;
    }
    return value;
}

oct_status oct_npy_read_f32(const oct_npy *npy, bool bf16, int64_t first, int64_t count, void *work,
                            float *out, oct_err *err)
{
    if (npy->dtype == OCT_NPY_F32)
        return oct_npy_read(npy, first, count, out, err);
    OCT_TRY(oct_npy_read(npy, first, count, work, err));
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)oct_npy_value(npy->dtype, bf16, work, i);
    return OCT_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

static oct_status write_all(oct_npy_writer *writer, const void *data, size_t bytes, oct_err *err)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t put = write(writer->fd, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return OCT_FAIL(err, OCT_E_IO, "cannot write an NPY file: %s (%s)", strerror(errno),
                            writer->path);
        done += (size_t)put;
    }
    return OCT_OK;
}

/* numpy.lib.format: the elements begin at a multiple of 64 bytes. */
static oct_status write_header(oct_npy_writer *writer, oct_npy_dtype dtype,
                               const oct_npy_shape *shape, oct_err *err)
{
    char text[512];
    int used = snprintf(text + 10, sizeof text - 10,
                        "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                        dtype == OCT_NPY_U8 ? '|' : '<', dtypes[dtype].code);
    for (int d = 0; d < shape->ndim; d++)
        used +=
            snprintf(text + 10 + used, sizeof text - 10 - (size_t)used, "%s%lld%s", d ? " " : "",
                     (long long)shape->dims[d], shape->ndim == 1 || d + 1 < shape->ndim ? "," : "");
    used += snprintf(text + 10 + used, sizeof text - 10 - (size_t)used, "), }");
    size_t bytes = 10 + (size_t)used;
    while ((bytes + 1) % 64 != 0)
        text[bytes++] = ' ';
    text[bytes++] = '\n';
    const size_t length = bytes - 10;
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)(length & 255);
    text[9] = (char)(length >> 8);
    return write_all(writer, text, bytes, err);
}

oct_status oct_npy_create(const char *path, oct_npy_dtype dtype, const oct_npy_shape *shape,
                          oct_npy_writer *out, oct_err *err)
{
    *out = (oct_npy_writer){.fd = -1, .element_bytes = dtypes[dtype].bytes};
    if (!shape_count(shape, out->element_bytes, &out->left))
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot write an NPY file: more than 2^63 bytes, fewer are required (%s)",
                        path);
    struct stat about;
    const bool standard = strcmp(path, "-") == 0;
    out->in_place = standard || (stat(path, &about) == 0 && !S_ISREG(about.st_mode));
    (void)snprintf(out->path, sizeof out->path, "%s", standard ? "standard output" : path);
    const int length =
        snprintf(out->temporary, sizeof out->temporary, "%s%s", path, out->in_place ? "" : ".tmp");
    if (length >= (int)sizeof out->temporary)
        return OCT_FAIL(err, OCT_E_IO,
                        "cannot write an NPY file: its name has %d bytes, fewer than %zu are "
                        "required (%s)",
                        length, sizeof out->temporary, path);
    const int flags = O_WRONLY | O_CLOEXEC | (out->in_place ? 0 : O_CREAT | O_TRUNC);
    out->fd = standard ? STDOUT_FILENO : open(out->temporary, flags, 0666);
    if (out->fd < 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot create an NPY file: %s (%s)", strerror(errno), path);
    return write_header(out, dtype, shape, err);
}

oct_status oct_npy_append(oct_npy_writer *writer, const void *elements, int64_t count, oct_err *err)
{
    if (count > writer->left)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot write an NPY file: %lld elements too many, no more are required "
                        "(%s)",
                        (long long)(count - writer->left), writer->path);
    writer->left -= count;
    return write_all(writer, elements, (size_t)count * writer->element_bytes, err);
}

oct_status oct_npy_finish(oct_npy_writer *writer, oct_err *err)
{
    if (writer->left != 0)
        return OCT_FAIL(err, OCT_E_API, "cannot write an NPY file: %lld elements are missing (%s)",
                        (long long)writer->left, writer->path);
    if (writer->fd != STDOUT_FILENO && close(writer->fd) != 0) {
        writer->fd = -1;
        return OCT_FAIL(err, OCT_E_IO, "cannot write an NPY file: %s (%s)", strerror(errno),
                        writer->path);
    }
    writer->fd = -1;
    if (!writer->in_place && rename(writer->temporary, writer->path) != 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot rename an NPY file: %s (%s)", strerror(errno),
                        writer->path);
    writer->temporary[0] = '\0'; /* nothing is left to discard */
    return OCT_OK;
}

void oct_npy_discard(oct_npy_writer *writer)
{
    if (!writer->temporary[0])
        return; /* never created, or finished */
    if (writer->fd >= 0 && writer->fd != STDOUT_FILENO)
        (void)close(writer->fd);
    if (!writer->in_place)
        (void)unlink(writer->temporary);
    *writer = (oct_npy_writer){.fd = -1};
}
