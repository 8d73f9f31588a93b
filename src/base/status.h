/* Status codes and the error record that every fallible function fills. */
#ifndef OCT_BASE_STATUS_H
#define OCT_BASE_STATUS_H

/* Pinned: codes are never renumbered. 0 is success, every failure is negative. */
typedef enum oct_status {
    OCT_OK = 0,
    OCT_E_API = -1,          /* a caller broke the contract; state is unchanged */
    OCT_E_NOMEM = -2,        /* memory could not be had */
    OCT_E_IO = -3,           /* the operating system refused a file operation */
    OCT_E_CORRUPT = -4,      /* a file is damaged or is not what it claims to be */
    OCT_E_CONFIG = -5,       /* a configuration is wrong */
    OCT_E_SHAPE = -6,        /* shapes, dtypes or layouts do not fit */
    OCT_E_UNSUPPORTED = -7,  /* legal, but not available here */
    OCT_E_PLAN = -8,         /* a replacement rule does not hold */
    OCT_E_NONFINITE = -9,    /* NaN or Inf where training cannot go on */
    OCT_E_COMM = -10,        /* communication between ranks failed */
    OCT_E_DATA = -11,        /* training data is wrong */
    OCT_E_INTERRUPTED = -12, /* a signal asked to stop */
    OCT_E_KERNEL = -13,      /* a kernel failed */
    OCT_E_CHECKPOINT = -14   /* a checkpoint could not be saved, found or loaded */
} oct_status;

/* The first failure wins: `msg` says what failed, what was found and what is required, and names
 * the key, FQN, path or file:line. `file` and `line` are where in the source it was raised. */
typedef struct oct_err {
    oct_status code;
    int rank;
    int line;
    const char *file;
    char msg[1024];
} oct_err;

#if defined(__GNUC__)
#define OCT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define OCT_MUST_CHECK        __attribute__((warn_unused_result))
#else
#define OCT_PRINTF(fmt, args)
#define OCT_MUST_CHECK
#endif

/* Records a failure and returns `code`. `err` may be NULL. */
oct_status oct_err_set(oct_err *err, oct_status code, const char *file, int line, const char *fmt,
                       ...) OCT_PRINTF(5, 6);

/* Puts "<context>: " in front of the message. Returns the code already recorded. */
oct_status oct_err_wrap(oct_err *err, oct_status code, const char *fmt, ...) OCT_PRINTF(3, 4);

/* A word for a code, for logs: "shape", "config", ... Never NULL. */
const char *oct_status_name(oct_status code);

/* Returns from the calling function when `call` fails; the error record is already filled. */
#define OCT_TRY(call)                                                                              \
    do {                                                                                           \
        oct_status oct_try_status_ = (call);                                                       \
        if (oct_try_status_ != OCT_OK)                                                             \
            return oct_try_status_;                                                                \
    } while (0)

/* Raises a failure: `return OCT_FAIL(err, OCT_E_SHAPE, "...", ...);` */
#define OCT_FAIL(err, code, ...) oct_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Adds context on the way up: `return OCT_WRAP(err, status, "loading '%s'", path);` */
#define OCT_WRAP(err, code, ...) oct_err_wrap((err), (code), __VA_ARGS__)

#endif
