#!/usr/bin/env python3
"""Writes tests/data/repr.tsv: bits of doubles and floats with the text Python (and numpy) give them.

python3 tests/libcommon/record_repr.py >tests/data/repr.tsv        (needs numpy)
"""
import random
import struct

import numpy


def double(bits):
    print(f"d\t{bits:016x}\t{struct.unpack('<d', struct.pack('<Q', bits))[0]!r}")


def bits_of(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def single(bits):
    x = numpy.frombuffer(struct.pack("<I", bits), numpy.float32)[0]
    small = numpy.isfinite(x) and x != 0 and not 1e-4 <= abs(x) < 1e16
    if small:
        mantissa, exponent = numpy.format_float_scientific(x, unique=True, trim="-").split("e")
        print(f"f\t{bits:08x}\t{mantissa}e{exponent}")
    else:
        print(f"f\t{bits:08x}\t{numpy.format_float_positional(x, unique=True, trim='0')}")


random.seed(20)
for x in (0.0, -0.0, 1.0, -1.0, 0.1, 0.2 + 0.1, 1e-5, 1.5e-5, 1e-4, 123456.789, 1e15, 1e16, 9999999999999998.0, 1e22,
          1e23, 5e-324, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308, float("inf"),
          float("-inf"), float("nan"), 2**53, 2**53 + 2, 2**-44, 100.0, 1 / 3, 0.0001234, 1e100):
    double(bits_of(x))
for e in range(1, 2046, 13):
    double(e << 52)
for _ in range(300):
    double(random.getrandbits(63))
    double(bits_of(round(random.random() * 10 ** random.randint(-7, 18), random.randint(0, 9))))
    double(random.getrandbits(52))
for e in range(1, 255, 3):
    single(e << 23)
for _ in range(300):
    single(random.randrange(1, 0x7f800000))
    single(struct.unpack("<I", struct.pack("<f", random.random()))[0])
