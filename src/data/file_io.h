/* Whole reads and writes at 64-bit offsets of open files. */
#ifndef OCT_DATA_FILE_IO_H
#define OCT_DATA_FILE_IO_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads exactly `bytes` at `offset`. Errors: OCT_E_DATA when the file ends before (it shrank since
 * it was opened) or cannot be read. */
oct_status oct_data_read_at(int fd, const char *path, int64_t offset, void *out, size_t bytes,
                            oct_err *err) OCT_MUST_CHECK;

/* Errors: OCT_E_IO. */
oct_status oct_data_write_at(int fd, const char *path, int64_t offset, const void *data,
                             size_t bytes, oct_err *err) OCT_MUST_CHECK;

#endif
