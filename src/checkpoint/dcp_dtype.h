/* dtypes of PyTorch's checkpoints by their names. */
#ifndef OCT_CHECKPOINT_DCP_DTYPE_H
#define OCT_CHECKPOINT_DCP_DTYPE_H

#include <stddef.h>

typedef struct oct_dcp_dtype {
    const char *name;    /* as in .metadata */
    const char *storage; /* class of its storage; "": listed, never read */
    size_t bytes;
} oct_dcp_dtype;

/* NULL: none of PyTorch's. */
const oct_dcp_dtype *oct_dcp_dtype_find(const char *name);

#endif
