"""GGUF files of tests/data/hf-tiny-mixtral and hf-tiny-qwen2_moe, under the names and in the shapes of llama.cpp's converter.

    python tests/formats/record_gguf_moe.py      writes tests/data/gguf/mixtral.gguf, qwen2_moe.gguf

Matrices are BF16 as they are, vectors (and the gate of the shared expert, which becomes one) F32; experts lie behind each other.
Needs gguf, torch and safetensors.
"""
import json
import os
import re

import gguf
import torch
from safetensors.torch import load_file

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
BLOCK = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
         "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
         "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
EXPERT = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps", "gate_proj": "ffn_gate_exps",
          "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def permute(x, heads):
    d = x.shape[0] // heads
    return x.reshape(heads, 2, d // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def renamed(tensors, config):
    out, experts = {}, {}
    for name, x in tensors.items():
        if name in TOP:
            out[TOP[name]] = x
            continue
        layer, rest, end = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", name).groups()
        of_expert = re.fullmatch(r".*\.experts\.(\d+)\.(\w+)", rest)
        if of_expert:
            experts.setdefault(f"blk.{layer}.{EXPERT[of_expert[2]]}.weight", {})[int(of_expert[1])] = x
            continue
        if config["model_type"] == "mixtral" and rest.endswith("q_proj"):
            x = permute(x, config["num_attention_heads"])
        if config["model_type"] == "mixtral" and rest.endswith("k_proj"):
            x = permute(x, config["num_key_value_heads"])
        out[f"blk.{layer}.{BLOCK[rest]}.{end}"] = x.squeeze() if rest.endswith("shared_expert_gate") else x
    out.update({name: torch.stack([e[i] for i in range(len(e))]) for name, e in experts.items()})
    return out


def write(name, arch):
    folder = os.path.join(DATA, "hf-tiny-" + name)
    config = json.load(open(os.path.join(folder, "config.json")))
    w = gguf.GGUFWriter(os.path.join(DATA, "gguf", name + ".gguf"), arch)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    if config.get("head_dim"):
        w.add_key_length(config["head_dim"])
        w.add_value_length(config["head_dim"])
    w.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])
    w.add_expert_count(config.get("num_local_experts") or config["num_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        w.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    for key, x in renamed(load_file(os.path.join(folder, "model.safetensors")), config).items():
        if x.dim() > 1:
            w.add_tensor(key, x.contiguous().view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(key, x.float().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


write("mixtral", "llama")
write("qwen2_moe", "qwen2moe")
