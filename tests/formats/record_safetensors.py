#!/usr/bin/env python3
"""Record what the `safetensors` package writes: python3 tests/formats/record_safetensors.py

Writes tests/data/safetensors/all.safetensors: every dtype that torch has, awkward names and shapes.
Recorded with safetensors 0.8.0 and torch 2.13.
"""
import os
import torch
from safetensors.torch import save

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "safetensors")
torch.manual_seed(1)


def raw(dtype, *shape):
    n = 1
    for d in shape:
        n *= d
    size = torch.empty((), dtype=dtype).element_size()
    b = torch.randint(0, 2 if dtype == torch.bool else 256, (n * size,), dtype=torch.uint8)
    return b.view(dtype).reshape(shape)


dtypes = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e8m0": torch.float8_e8m0fnu,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8,
    "u64": torch.uint64, "u32": torch.uint32, "u16": torch.uint16, "u8": torch.uint8, "bool": torch.bool,
}
t = {}
for name, d in dtypes.items():
    t["%s.weight" % name] = raw(d, 3, 5)
    t["a.%s" % name] = raw(d, 1)
t["model.layers.10.w"] = raw(torch.bfloat16, 2, 3)
t["model.layers.9.w"] = raw(torch.bfloat16, 2, 3)
t["scalar"] = raw(torch.float32)
t["empty"] = raw(torch.float32, 0, 5)
t["quote\" backslash\\ slash/"] = raw(torch.float32, 2)
t["tab\t newline\n bell\x07 del\x7f"] = raw(torch.float32, 2)
t["\u00e9\u4e2d\U0001f600"] = raw(torch.float32, 2)
t["deep"] = raw(torch.uint8, 1, 2, 1, 2, 1, 2, 1, 1)
with open(os.path.join(here, "all.safetensors"), "wb") as f:
    f.write(save(t, {"format": "pt"}))
