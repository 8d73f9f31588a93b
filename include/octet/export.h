/* Marks what the shared library exports and what a caller must not ignore. */
#ifndef OCTET_EXPORT_H
#define OCTET_EXPORT_H

#if defined(__GNUC__)
#define OCTET_API        __attribute__((visibility("default")))
#define OCTET_MUST_CHECK __attribute__((warn_unused_result))
#else
#define OCTET_API
#define OCTET_MUST_CHECK
#endif

#endif
