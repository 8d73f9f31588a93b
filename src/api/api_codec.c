/* Codecs of single numbers, and of many on the calling thread. */
#include <math.h>
#include <string.h>

#include "api/api_check.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/e8m0.h"
#include "numeric/hif8.h"

float octet_bf16_decode(uint16_t code)
{
    return oct_bf16_to_f32(code);
}

uint16_t octet_bf16_encode(float x)
{
    return oct_bf16_from_f32(x);
}

float octet_e4m3_decode(uint8_t code)
{
    return oct_e4m3_decode(code);
}

uint8_t octet_e4m3_encode(float x, bool saturate)
{
    return oct_e4m3_encode(x, saturate);
}

float octet_e8m0_decode(uint8_t code)
{
    return oct_e8m0_decode(code);
}

uint8_t octet_e8m0_encode(float x)
{
    return oct_e8m0_encode(x);
}

float octet_hif8_decode(uint8_t code)
{
    return oct_hif8_decode(code);
}

uint8_t octet_hif8_encode(float x, bool saturate)
{
    return oct_hif8_encode(x, saturate);
}

uint8_t octet_mx_scale_round_up(float amax)
{
    return oct_mx_scale_byte(amax, OCT_MX_RULE_ROUND_UP);
}

uint8_t octet_mx_scale_floor(float amax)
{
    return oct_mx_scale_byte(amax, OCT_MX_RULE_FLOOR);
}

float octet_hif8_scale(float amax, float format_max)
{
    return format_max >= 1.0f && isfinite(format_max) ? oct_hif8_scale(amax, format_max) : 1.0f;
}

/* --- many ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes;
    bool saturates;
} elements[] = {[OCTET_ELEMENT_E4M3] = {"e4m3", 1, true},
                [OCTET_ELEMENT_E8M0] = {"e8m0", 1, false},
                [OCTET_ELEMENT_HIF8] = {"hif8", 1, true},
                [OCTET_ELEMENT_BF16] = {"bf16", 2, false}};
enum { ELEMENT_COUNT = sizeof elements / sizeof elements[0] };

const char *octet_element_name(octet_element element)
{
    return (unsigned)element < ELEMENT_COUNT ? elements[element].name : "unknown";
}

/* The two sides of a conversion: `count` elements, of which x is FP32. */
static octet_status check(octet_element element, int64_t count, const float *x, const void *codes,
                          bool encode, const char *function, octet_error *error)
{
    OCT_API_TRY(
        oct_api_check_range((int32_t)element, 0, ELEMENT_COUNT - 1, function, "element", error));
    OCT_API_TRY(oct_api_check_range(count, 0, INT64_MAX / 8, function, "count", error));
    const size_t floats = (size_t)count * sizeof(float);
    const size_t bytes = (size_t)count * elements[element].bytes;
    const oct_api_region regions[] = {{"x", x, floats, floats, _Alignof(float), !encode},
                                      {"codes", codes, bytes, bytes, 1, encode}};
    return oct_api_check_regions(regions, 2, function, error);
}

octet_status octet_encode(octet_element element, bool saturate, const float *x, int64_t count,
                          void *codes, octet_error *error)
{
    static const char function[] = "octet_encode";
    OCT_API_TRY(check(element, count, x, codes, true, function, error));
    if (saturate && !elements[element].saturates)
        return oct_api_fail(error, OCTET_E_UNSUPPORTED, function,
                            "saturate is true, false is required for %s", elements[element].name);
    uint8_t *out = codes;
    for (int64_t i = 0; i < count; i++) {
        switch (element) {
        case OCTET_ELEMENT_E4M3:
            out[i] = oct_e4m3_encode(x[i], saturate);
            break;
        case OCTET_ELEMENT_E8M0:
            out[i] = oct_e8m0_encode(x[i]);
            break;
        case OCTET_ELEMENT_HIF8:
            out[i] = oct_hif8_encode(x[i], saturate);
            break;
        case OCTET_ELEMENT_BF16: {
            const uint16_t code = oct_bf16_from_f32(x[i]);
            memcpy(out + 2 * i, &code, sizeof code);
            break;
        }
        }
    }
    return OCTET_OK;
}

octet_status octet_decode(octet_element element, const void *codes, int64_t count, float *x,
                          octet_error *error)
{
    OCT_API_TRY(check(element, count, x, codes, false, "octet_decode", error));
    const uint8_t *in = codes;
    for (int64_t i = 0; i < count; i++) {
        switch (element) {
        case OCTET_ELEMENT_E4M3:
            x[i] = oct_e4m3_decode(in[i]);
            break;
        case OCTET_ELEMENT_E8M0:
            x[i] = oct_e8m0_decode(in[i]);
            break;
        case OCTET_ELEMENT_HIF8:
            x[i] = oct_hif8_decode(in[i]);
            break;
        case OCTET_ELEMENT_BF16: {
            uint16_t code;
            memcpy(&code, in + 2 * i, sizeof code);
            x[i] = oct_bf16_to_f32(code);
            break;
        }
        }
    }
    return OCTET_OK;
}
