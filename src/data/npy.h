/* NPY files: a header with dtype, order and shape, then the elements. Reads versions 1 to 3, C and
 * Fortran order, both byte orders; writes version 1, C order, little endian. Source: NEP 1 and
 * numpy.lib.format. Every error is OCT_E_DATA and names the file, what was found and what is
 * required, but for memory (OCT_E_NOMEM) and writing (OCT_E_IO). */
#ifndef OCT_DATA_NPY_H
#define OCT_DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { OCT_NPY_MAX_NDIM = 8, OCT_NPY_PATH_BYTES = 4096 };

/* The dtypes that are understood. */
typedef enum oct_npy_dtype {
    OCT_NPY_U8,
    OCT_NPY_U16, /* also holds BF16: NumPy has no such dtype */
    OCT_NPY_F16,
    OCT_NPY_F32,
    OCT_NPY_F64
} oct_npy_dtype;

size_t oct_npy_dtype_bytes(oct_npy_dtype dtype);
const char *oct_npy_dtype_name(oct_npy_dtype dtype); /* "uint8", ... */

typedef struct oct_npy_shape {
    int ndim; /* 0 is a scalar: one element */
    int64_t dims[OCT_NPY_MAX_NDIM];
} oct_npy_shape;

/* "[2, 3]" into a buffer of 200 bytes; returns it. */
const char *oct_npy_shape_text(const oct_npy_shape *shape, char text[200]);

bool oct_npy_shape_equal(const oct_npy_shape *a, const oct_npy_shape *b);

/* An open file. Owner of its descriptor and, where the elements cannot be read in place (standard
 * input, Fortran order), of a copy of them in memory. `path` is borrowed. */
typedef struct oct_npy {
    const char *path;
    oct_npy_dtype dtype;
    oct_npy_shape shape;
    int64_t count; /* elements */
    bool big_endian, fortran;
    int fd;               /* -1: all is in memory */
    int64_t offset;       /* of the first element */
    unsigned char *bytes; /* elements as in the file, or NULL */
} oct_npy;

/* Opens `path` ("-" is the standard input, which is read to its end), checks the header and that
 * the file holds exactly the elements that it announces. */
oct_status oct_npy_open(const char *path, oct_npy *out, oct_err *err) OCT_MUST_CHECK;
void oct_npy_close(oct_npy *npy); /* also of a zeroed one */

/* Elements first .. first + count - 1 of the C order, in native byte order. */
oct_status oct_npy_read(const oct_npy *npy, int64_t first, int64_t count, void *out,
                        oct_err *err) OCT_MUST_CHECK;

/* What an element is as a number: exact. bf16: uint16 holds BF16. */
double oct_npy_value(oct_npy_dtype dtype, bool bf16, const void *elements, int64_t index);

/* Elements as FP32: f2, f4 and BF16 exactly, f8 rounded once to nearest even. work has room for
 * count elements of the file's dtype. */
oct_status oct_npy_read_f32(const oct_npy *npy, bool bf16, int64_t first, int64_t count, void *work,
                            float *out, oct_err *err) OCT_MUST_CHECK;

/* A file that is being written, from its first element to its last. What has a name appears under
 * it only when it is complete. */
typedef struct oct_npy_writer {
    int fd;
    bool in_place; /* the standard output or a device: no second name */
    int64_t left;  /* elements not written yet */
    size_t element_bytes;
    char path[OCT_NPY_PATH_BYTES], temporary[OCT_NPY_PATH_BYTES];
} oct_npy_writer;

/* `path` "-" is the standard output. */
oct_status oct_npy_create(const char *path, oct_npy_dtype dtype, const oct_npy_shape *shape,
                          oct_npy_writer *out, oct_err *err) OCT_MUST_CHECK;
oct_status oct_npy_append(oct_npy_writer *writer, const void *elements, int64_t count,
                          oct_err *err) OCT_MUST_CHECK;
/* Gives the file its name. Errors also: OCT_E_API if elements are missing. */
oct_status oct_npy_finish(oct_npy_writer *writer, oct_err *err) OCT_MUST_CHECK;
void oct_npy_discard(oct_npy_writer *writer); /* also of a zeroed or finished one */

#endif
