"""E8M0: mxfp8.md, "E8M0"."""
import math

from f32 import NAN

NAN_BYTE = 0xff


def decode(byte):
    return NAN if byte == NAN_BYTE else math.ldexp(1.0, byte - 127)
