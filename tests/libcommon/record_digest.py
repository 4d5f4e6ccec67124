#!/usr/bin/env python3
"""The digests in test_hash.c, from libcommon/hash.h's formula in Python's whole numbers."""

M64 = (1 << 64) - 1


def fmix64(x):
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & M64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & M64
    return x ^ x >> 33


def digest(values, first, name):
    total = 0
    for i, bits in enumerate(values):
        x = (bits + (first + i + 1) * 0x9E3779B97F4A7C15 + name) & M64
        total += fmix64(x) | fmix64(x ^ 0xD1B54A32D192ED03) << 64
    return total % (1 << 128)


def data(n, size):
    raw = bytes((k * k * 7 + k * 13 + 5) & 255 for k in range(n * size))
    return [int.from_bytes(raw[i * size : (i + 1) * size], "little") for i in range(n)]


for size in (1, 2, 4, 8):
    for n, first, name in ((1, 0, 0), (1000, 3, 0x123456789ABCDEF0), (203, (1 << 40) + 1, M64)):
        print('{ %d, %d, 0x%x, 0x%x, "%032x" },' % (n, size, first, name, digest(data(n, size), first, name)))
