#!/usr/bin/env python3
"""Record what the `gguf` package reads and writes: python3 tests/formats/record_gguf.py

tests/data/gguf/quants.gguf     for each block format random blocks, and beside them what gguf.quants.dequantize makes of them
                                (NAME and NAME.f32); rope_freqs of llama3 scalings as the converter computes them (in torch, F32)
tests/data/gguf/model.gguf      a tiny llama as the converter writes it (q and k permuted), with a small tokenizer
tests/data/gguf/model.safetensors  the same weights under their Hugging Face names
tests/data/gguf/split-0000i-of-00002.gguf  quants' smallest formats again, as gguf's writer splits a model
Recorded with gguf 0.19.0, safetensors 0.8.0, torch 2.13.
"""
import math
import os
import numpy as np
import torch
import gguf
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quant_shape_from_byte_shape
from safetensors.numpy import save_file

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "gguf")
rng = np.random.default_rng(7)

HAND = {  # the first bytes of a block: worked by hand
    T.Q4_0: bytes([0x00, 0x38, 0x1f]),
    T.Q4_1: bytes([0x00, 0x38, 0x00, 0xbc, 0x1f]),
    T.Q5_0: bytes([0x00, 0x3c, 1, 0, 0, 0, 0x03]),
    T.Q8_0: bytes([0x00, 0x34, 0x80]),
}
HALVES = {T.Q6_K: [208], T.Q4_1: [0, 2], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2]}


def blocks(t, rows, per_row):
    block, size = gguf.GGML_QUANT_SIZES[t]
    b = rng.integers(0, 256, (rows * per_row, size), dtype=np.uint8)
    for at in HALVES.get(t, [0]):
        h = rng.normal(0, 1, rows * per_row).astype(np.float16)
        h[-1] = np.float16(6e-8 * 37)  # subnormal
        b[:, at:at + 2] = h.view(np.uint8).reshape(-1, 2)
    if t in HAND:
        b[0] = 0
        b[0, :len(HAND[t])] = np.frombuffer(HAND[t], dtype=np.uint8)
    return b.reshape(rows, per_row * size)


def rope_freqs(theta, d, factor, low, high, original):
    freqs = 1.0 / (theta ** (torch.arange(0, d, 2, dtype=torch.float32) / d))
    out = []
    for f in freqs:
        wave = 2 * math.pi / f
        if wave < original / high:
            out.append(1)
        elif wave > original / low:
            out.append(factor)
        else:
            s = (original / wave - low) / (high - low)
            out.append(1 / ((1 - s) / factor + s))
    return torch.tensor(out, dtype=torch.float32).numpy()


def quants():
    w = gguf.GGUFWriter(os.path.join(here, "quants.gguf"), "none")
    for t in (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K):
        b = blocks(t, 3, 2) if t.value < 10 else blocks(t, 2, 1)
        w.add_tensor(t.name, b, raw_dtype=t)
        w.add_tensor(t.name + ".f32", dequantize(b, t).astype(np.float32))
    x = rng.normal(0, 1, (3, 7)).astype(np.float32)
    h = x.astype(np.float16)
    b = (x.view(np.uint32) >> 16).astype(np.uint16)
    w.add_tensor("F16", h)
    w.add_tensor("F16.f32", h.astype(np.float32))
    w.add_tensor("BF16", b.view(np.uint8), raw_dtype=T.BF16)
    w.add_tensor("BF16.f32", dequantize(b.view(np.uint8), T.BF16).astype(np.float32))
    w.add_tensor("Q3_K", rng.integers(0, 256, (1, 110), dtype=np.uint8), raw_dtype=T.Q3_K)
    w.add_tensor("rope31", rope_freqs(500000.0, 128, 8.0, 1.0, 4.0, 8192))
    w.add_tensor("rope32", rope_freqs(500000.0, 64, 32.0, 1.0, 4.0, 8192))
    w.add_tensor("rope_odd", rope_freqs(10000.0, 64, 16.0, 2.0, 6.0, 2048))
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def permute(x, heads):
    d = x.shape[0] // heads
    return x.reshape(heads, 2, d // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def model():
    V, H, I, L, nh, nkv, d = 18, 8, 20, 2, 4, 2, 6
    hf = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,)}
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for i in range(L):
        for name, short, shape in (
                ("input_layernorm", "attn_norm", (H,)), ("self_attn.q_proj", "attn_q", (nh * d, H)),
                ("self_attn.k_proj", "attn_k", (nkv * d, H)), ("self_attn.v_proj", "attn_v", (nkv * d, H)),
                ("self_attn.o_proj", "attn_output", (H, nh * d)), ("post_attention_layernorm", "ffn_norm", (H,)),
                ("mlp.gate_proj", "ffn_gate", (I, H)), ("mlp.up_proj", "ffn_up", (I, H)), ("mlp.down_proj", "ffn_down", (H, I))):
            hf["model.layers.%d.%s.weight" % (i, name)] = shape
            names["model.layers.%d.%s.weight" % (i, name)] = "blk.%d.%s.weight" % (i, short)
    hf = {k: rng.normal(0, 1, s).astype(np.float16 if len(s) > 1 else np.float32) for k, s in hf.items()}
    save_file(hf, os.path.join(here, "model.safetensors"), {"format": "pt"})
    w = gguf.GGUFWriter(os.path.join(here, "model.gguf"), "llama")
    w.add_block_count(L)
    w.add_context_length(64)
    w.add_embedding_length(H)
    w.add_feed_forward_length(I)
    w.add_head_count(nh)
    w.add_head_count_kv(nkv)
    w.add_key_length(d)
    w.add_value_length(d)
    w.add_rope_dimension_count(d)
    w.add_rope_freq_base(100000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(V)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(["<|end|>", "<|start|>", "\u0120"] + [chr(97 + i) for i in range(13)] + ["ab", "\u0120ab"])
    w.add_token_types([3, 3] + [1] * 16)
    w.add_token_merges(["a b", "\u0120 ab"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(0)
    w.add_eot_token_id(0)
    w.add_add_bos_token(False)
    w.add_chat_template("{{ messages }}\n")
    for k, x in hf.items():
        heads = nh if "q_proj" in k else nkv if "k_proj" in k else 0
        w.add_tensor(names[k], np.ascontiguousarray(permute(x, heads)) if heads else x)
    finish(w)


def split():
    w = gguf.GGUFWriter(os.path.join(here, "split.gguf"), "none", split_max_tensors=2)
    for i in range(3):
        w.add_tensor("t%d" % i, np.arange(i, i + 3, dtype=np.float32))
    finish(w)


quants()
model()
split()
