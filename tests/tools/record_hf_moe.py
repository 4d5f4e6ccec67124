#!/usr/bin/env python3
"""Tiny Hugging Face folders with experts, in both spellings, and the logits that transformers gives.

    python tests/tools/record_hf_moe.py        writes tests/data/hf-tiny-{mixtral,qwen2_moe}{,-fused}/ and tests/data/hf-tiny-moe.json

NAME is what save_pretrained() writes (one tensor an expert), NAME-fused the same model under the names that transformers 5 has in
memory.  bfloat16; dimensions pairwise distinct.  Needs torch, transformers, safetensors.
"""
import json
import os
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
SIZES = dict(vocab_size=37, hidden_size=12, num_attention_heads=3, num_key_value_heads=1, intermediate_size=14, num_hidden_layers=2,
             max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
MODELS = {
    "mixtral": dict(SIZES, model_type="mixtral", head_dim=6, num_local_experts=5, num_experts_per_tok=2),
    "qwen2_moe": dict(SIZES, model_type="qwen2_moe", num_experts=7, num_experts_per_tok=3, moe_intermediate_size=9,
                      shared_expert_intermediate_size=11, num_hidden_layers=3, mlp_only_layers=[1]),
}


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
