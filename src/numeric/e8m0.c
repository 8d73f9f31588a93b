#include "numeric/e8m0.h"

#include "numeric/bf16.h"

uint8_t oct_e8m0_encode(float x)
{
    const uint32_t bits = oct_f32_bits(x) & 0x7fffffffu;
    if (bits > 0x7f000000u) /* 2^127 */
        return 0xff;
    if (bits <= 0x00400000u) /* 2^-127 */
        return 0;
    return (uint8_t)((bits + 0x7fffffu) >> 23);
}

uint8_t oct_mx_scale_byte(float amax, oct_mx_rule rule)
{
    const uint32_t bits = oct_f32_bits(amax) & 0x7fffffffu;
    if (bits >= 0x7f800000u)
        return 0xff;
    if (rule == OCT_MX_RULE_ROUND_UP)
        return oct_e8m0_encode(oct_f32_from_bits(bits) / 448.0f);
    const uint32_t exponent = bits >> 23; /* floor(log2 amax) + 127; any subnormal clamps to 00 */
    return (uint8_t)(exponent > 8 ? exponent - 8 : 0);
}

float oct_mx_element_factor(uint8_t byte)
{
    return oct_e8m0_decode((uint8_t)(254u - byte));
}
