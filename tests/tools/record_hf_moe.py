#!/usr/bin/env python3
"""Tiny Hugging Face folders with experts, in both spellings, and the logits that transformers gives.

    python tests/tools/record_hf_moe.py        writes tests/data/hf-tiny-{mixtral,qwen2_moe}{,-fused}/ and tests/data/hf-tiny-moe.json

NAME is what save_pretrained() writes (one tensor an expert), NAME-fused the same model under the names that transformers 5 has in
memory.  bfloat16; dimensions pairwise distinct.  hf-tiny-moe-fp8 is qwen2_moe with the matrices of experts in FP8, blocks of 4 x 8
with a scale each, and hf-tiny-moe-fp8-wide what these stand for, rounded to bfloat16.  Needs torch, transformers, safetensors.
"""
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
SIZES = dict(vocab_size=37, hidden_size=12, num_attention_heads=3, num_key_value_heads=1, intermediate_size=14, num_hidden_layers=2,
             max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
MODELS = {
    "mixtral": dict(SIZES, model_type="mixtral", head_dim=6, num_local_experts=5, num_experts_per_tok=2),
    "qwen2_moe": dict(SIZES, model_type="qwen2_moe", num_experts=7, num_experts_per_tok=3, moe_intermediate_size=9,
                      shared_expert_intermediate_size=11, num_hidden_layers=3, mlp_only_layers=[1]),
}


def quantised(x):
    """float8_e4m3fn and scales by blocks, and the bfloat16 that they stand for."""
    rows, cols = -(-x.shape[0] // 4), -(-x.shape[1] // 8)
    q, wide, scale = torch.empty(x.shape, dtype=torch.float8_e4m3fn), torch.empty(x.shape), torch.empty(rows, cols)
    for i in range(rows):
        for j in range(cols):
            part = (slice(4 * i, 4 * i + 4), slice(8 * j, 8 * j + 8))
            scale[i, j] = x[part].float().abs().max() / 448
            q[part] = (x[part].float() / scale[i, j]).to(torch.float8_e4m3fn)
            wide[part] = q[part].float() * scale[i, j]
    return q, scale, wide.to(torch.bfloat16)


def fp8():
    source, out = os.path.join(DATA, "hf-tiny-qwen2_moe"), os.path.join(DATA, "hf-tiny-moe-fp8")
    narrow, wide = {}, {}
    for key, x in load_file(os.path.join(source, "model.safetensors")).items():
        narrow[key] = wide[key] = x
        if ".experts." in key:
            narrow[key], narrow[key + "_scale_inv"], wide[key] = quantised(x)
    config = json.load(open(os.path.join(source, "config.json")))
    for folder, tensors in ((out, narrow), (out + "-wide", wide)):
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        if tensors is narrow:
            config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [4, 8]}
        else:
            del config["quantization_config"]
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f, indent=2)
            f.write("\n")


def main():
    expected = {}
    for i, (name, keys) in enumerate(MODELS.items()):
        out = os.path.join(DATA, "hf-tiny-" + name)
        torch.manual_seed(200 + i)
        config = AutoConfig.for_model(**keys, dtype=torch.bfloat16)
        model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
        with torch.no_grad():
            for p in model.parameters():
                p.add_((0.25 * torch.randn(p.shape)).to(torch.bfloat16))
        for folder in (out, out + "-fused"):
            shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(out)
        os.mkdir(out + "-fused")
        for side in ("config.json", "generation_config.json"):
            shutil.copy(os.path.join(out, side), out + "-fused")
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, os.path.join(out + "-fused", "model.safetensors"),
                  metadata={"format": "pt"})
        wide = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager",
                                                    experts_implementation="eager").eval()
        ids = [2 + (37 * k + 11 * i) % (keys["vocab_size"] - 2) for k in range(9)]
        with torch.no_grad():
            logits = wide(torch.tensor([ids])).logits[0, -1]
        expected[name] = dict(ids=ids, logits=[float(f"{x:.9g}") for x in logits.tolist()])
        print(name, sorted(os.listdir(out)), len(model.state_dict()))
    with open(os.path.join(DATA, "hf-tiny-moe.json"), "w") as f:
        json.dump(expected, f)
        f.write("\n")


main()
fp8()
