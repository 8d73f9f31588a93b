/* octet: 8-bit formats for training, MXFP8 (E4M3 with E8M0 block scales) and HiFloat8, and their
 * exact matrix products, every bit defined (docs/spec/ of the project; installed beside
 * docs/c-api.md).
 *
 * One header for all:
 *   octet/status.h    status codes and the error record
 *   octet/version.h   version of the headers and of the library
 *   octet/context.h   instruction set, threads, what this build can do
 *   octet/codec.h     E4M3, E8M0, HiF8 and BF16, one number or many
 *   octet/operand.h   quantized matrices: shapes, sizes, scale layouts, dequantize
 *   octet/quantize.h  FP32 or BF16 to operands
 *   octet/product.h   products of operands, dense and grouped
 *
 * Rules of every function:
 *   - It has no state outside its arguments, so any number of threads may call it at once as long
 *     as none writes what another one uses. A context is never written after it was made.
 *   - It allocates nothing: memory comes from the caller, and a *_bytes function tells how much.
 * The one exception is the OpenMP runtime, which keeps its threads; with 1 thread it is not called.
 *   - It never prints, exits or changes signals or the floating-point environment.
 *   - A wrong argument is an error that names it; then nothing was written, unless noted.
 *   - Results do not depend on instruction set, threads or alignment.
 *   - Floating point: round to nearest, subnormals kept. Functions that take a context refuse a
 *     thread that has FTZ, DAZ or another rounding mode set (OCTET_E_ENVIRONMENT). Scalar functions
 *     do not look. */
#ifndef OCTET_OCTET_H
#define OCTET_OCTET_H

#include <octet/codec.h>
#include <octet/context.h>
#include <octet/operand.h>
#include <octet/product.h>
#include <octet/quantize.h>
#include <octet/status.h>
#include <octet/version.h>

#endif
