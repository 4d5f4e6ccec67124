#!/usr/bin/env python3
"""Configs, RoPE frequencies and parameter tables by transformers.

    record_config.py                     writes tests/data/model_config.json, which test_model_config reads
    record_config.py check TEST_PROGRAM  has `TEST_PROGRAM write DIR` write configs, and reads them with AutoConfig
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 128}
SIZES = dict(vocab_size=101, hidden_size=12, intermediate_size=14, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=3, max_position_embeddings=512)

CASES = [
    ("llama", dict(head_dim=10)),
    ("llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3, head_dim=16)),
    ("llama", dict(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}, head_dim=8, eos_token_id=[3, 5])),
    ("llama", dict(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}, head_dim=8)),
    ("mistral", dict(sliding_window=None, head_dim=6, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    ("qwen2", dict(rope_parameters=YARN, head_dim=16, dtype="bfloat16")),
    ("qwen2", dict(num_key_value_heads=6, tie_word_embeddings=True)),
    ("qwen3", dict(head_dim=16, rope_parameters=dict(YARN, truncate=False, beta_fast=16.0, attention_factor=1.25))),
    ("qwen3", dict(attention_bias=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    ("mixtral", dict(head_dim=8, num_local_experts=5, num_experts_per_tok=2)),
    ("qwen2_moe", dict(num_hidden_layers=5, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=9,
                       shared_expert_intermediate_size=11, decoder_sparse_step=2, mlp_only_layers=[3])),
    ("qwen2_moe", dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=9, shared_expert_intermediate_size=11,
                       qkv_bias=False)),
    ("qwen3_moe", dict(head_dim=8, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=9, norm_topk_prob=True)),
]


def frequencies(config, model):
    kind = config.rope_parameters["rope_type"]
    if kind != "default":
        return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return model.model.rotary_emb.compute_default_rope_parameters(config)


def names_of(model_type, config, model):
    """Names and shapes in the file that save_pretrained() writes; the experts of a layer as one, without their numbers."""
    if not getattr(config, "num_local_experts", None) and not getattr(config, "num_experts", None):
        return {name: list(p.shape) for name, p in model.named_parameters()}
    names = {}
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        with safe_open(folder + "/model.safetensors", "pt") as f:
            for name in f.keys():
                shape = f.get_slice(name).get_shape()
                one = re.sub(r"\.experts\.\d+\.", ".experts.", name)
                names[one] = [names.get(one, [0])[0] + 1] + shape if one != name else shape
    return names


def record():
    out = []
    for model_type, options in CASES:
        config = AutoConfig.for_model(model_type, **{**SIZES, **options})
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        inv_freq, factor = frequencies(config, model)
        config.architectures = [type(model).__name__]
        saved = json.loads(config.to_json_string(use_diff=True))
        out.append({
            "config": saved,
            "inv_freq": [float(x) for x in inv_freq],
            "attention_factor": float(factor),
            "parameters": model.num_parameters(),
            "names": names_of(model_type, config, model),
        })
    with open("tests/data/model_config.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(x) for x in out) + "\n]\n")


def check(program):
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "write", folder], check=True, stdout=subprocess.DEVNULL)
        for path in sorted(glob.glob(folder + "/*/config.json")):
            ours = json.load(open(path))
            theirs = AutoConfig.from_pretrained(os.path.dirname(path)).to_dict()
            for key, want in ours.items():
                if key in ("rope_theta", "rope_scaling", "torch_dtype"):
                    continue
                got = theirs.get(key)
                if key == "rope_parameters":
                    got = {k: v for k, v in got.items() if k in want}
                if str(got).replace("torch.", "") != str(want):
                    bad += 1
                    print(f"{path}: {key}: ours {want}, theirs {got}")
            if any(t != "full_attention" for t in theirs.get("layer_types") or []):
                bad += 1
                print(f"{path}: layer_types {theirs['layer_types']}")
            print(os.path.basename(os.path.dirname(path)), "read by transformers", transformers.__version__)
    sys.exit(bad > 0)


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["check"] else record()
