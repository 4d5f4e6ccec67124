"""Records what transformers and PyTorch compute in float32 for tiny models of every family.

    python tests/kernels/record_models.py tests/data/models

Weights are a formula (weight() here, weight_value() in test_model.c), so only results are stored: NAME.json is the
config, NAME.bin named float32 arrays (u32 length of name, name, u32 count, values): the logits of two sequences,
the log-probabilities of their next tokens, every gradient, the gradient norm and every weight after one clipped AdamW step.
Dimensions are pairwise distinct.  Made with torch 2.13.0 and transformers 5.
"""
import json
import struct
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SEQUENCES = [[3, 17, 8, 28, 0, 11, 5], [9, 2, 22, 14, 1]]
BASE = dict(vocab_size=29, hidden_size=12, intermediate_size=14, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=4, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False,
            rope_theta=10000.0, torch_dtype="float32", bos_token_id=1, eos_token_id=2)
MODELS = {
    "llama": dict(model_type="llama"),
    "llama_tied": dict(model_type="llama", tie_word_embeddings=True),
    "llama_bias_llama3": dict(model_type="llama", attention_bias=True, rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)),
    "llama_linear": dict(model_type="llama", num_key_value_heads=1, rope_scaling=dict(rope_type="linear", factor=2.0)),
    "llama_yarn": dict(model_type="llama", num_attention_heads=3, num_key_value_heads=3, head_dim=6, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    "mistral": dict(model_type="mistral", sliding_window=None),
    "qwen2_tied": dict(model_type="qwen2", tie_word_embeddings=True, head_dim=None, num_attention_heads=3, num_key_value_heads=1),
    "qwen3": dict(model_type="qwen3", rms_norm_eps=1e-6),
    "qwen3_small": dict(model_type="qwen3", tie_word_embeddings=True),
    "mixtral": dict(model_type="mixtral", sliding_window=None, num_local_experts=5, num_experts_per_tok=2),
    "qwen2_moe": dict(model_type="qwen2_moe", head_dim=None, num_attention_heads=3, num_key_value_heads=1, num_experts=7,
                      num_experts_per_tok=3, moe_intermediate_size=9, shared_expert_intermediate_size=11, norm_topk_prob=False,
                      num_hidden_layers=3, decoder_sparse_step=1, mlp_only_layers=[1]),
    "qwen3_moe": dict(model_type="qwen3_moe", num_experts=13, num_experts_per_tok=3, moe_intermediate_size=9,
                      norm_topk_prob=True, tie_word_embeddings=True),
}
SCALE = {"qwen3_small": 1e-2}  # of the embedding: activations so small that a wrong epsilon shows


def mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def weight(name, shape, scale):
    h = 14695981039346656037
    for b in name.encode():
        h = (h ^ b) * 1099511628211 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        u = mix(np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(h))
    x = (u >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
    if "norm" in name:
        x = 1.0 + 0.25 * x
    elif name == "model.embed_tokens.weight":
        x = x * scale
    else:
        x = 0.5 * x
    return torch.from_numpy(x.astype(np.float32).reshape(shape))


EXPERT = {"mixtral": ("block_sparse_moe.experts.%s.weight", "w1", "w3", "w2")}
FUSED = ("mlp.experts.%s.weight", "gate_proj", "up_proj", "down_proj")


def unfused(model_type, key, value):
    """What the toolkit stores of a parameter of transformers 5, whose experts are fused: [(name, array)]."""
    form, gate, up, down = EXPERT.get(model_type, FUSED)
    if key.endswith("mlp.experts.gate_up_proj"):
        layer, half = key[:-len("mlp.experts.gate_up_proj")], value.shape[1] // 2
        return [(layer + form % gate, value[:, :half]), (layer + form % up, value[:, half:])]
    if key.endswith("mlp.experts.down_proj"):
        return [(key[:-len("mlp.experts.down_proj")] + form % down, value)]
    if model_type == "mixtral":
        key = key.replace("mlp.gate.weight", "block_sparse_moe.gate.weight")
    return [(key, value)]


def token_weight(i):
    return ((i * 7) % 11 - 3) / 16.0


def router_losses(model, config):
    """0.5 of the load balancing loss and 0.25 of the z loss of kernels/model/router.h, of both sequences as one bin."""
    logits = [model(torch.tensor([ids]), output_router_logits=True).router_logits for ids in SEQUENCES]
    k, loss, values = config["num_experts_per_tok"], 0, []
    for of_layer in zip(*logits):
        z = torch.cat(of_layer)
        p, experts = torch.softmax(z, -1), z.shape[-1]
        visits = torch.bincount(torch.topk(p, k, -1).indices.flatten(), minlength=experts)
        aux = experts * (visits / (k * len(z)) * p.mean(0)).sum()
        square = torch.logsumexp(z, -1).pow(2).mean()
        loss = loss + 0.5 * aux + 0.25 * square
        values += [aux.detach(), square.detach()]
    return loss, torch.stack(values)


def record_router_losses(out, model, config):
    params = dict(model.named_parameters())
    loss, out["router_losses"] = router_losses(model, config)
    chosen = [key for key in params if key.endswith("mlp.gate.weight") or key == "model.embed_tokens.weight"
              or key.endswith("0.self_attn.q_proj.weight")]
    grads = torch.autograd.grad(loss, [params[key] for key in chosen])
    for key, g in zip(chosen, grads):
        out["router." + unfused(config["model_type"], key, g)[0][0]] = g


def record(name, extra, folder):
    config = {k: v for k, v in {**BASE, **extra}.items() if v is not None or k == "sliding_window"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation="eager",
                                             experts_implementation="eager").float()
    model.eval()
    params = dict(model.named_parameters())
    with torch.no_grad():
        for key, p in params.items():
            for ours, part in unfused(config["model_type"], key, p):
                part.copy_(weight(ours, tuple(part.shape), SCALE.get(name, 0.5)))
    out, loss, i, lps = {}, 0.0, 0, []
    for s, ids in enumerate(SEQUENCES):
        logits = model(torch.tensor([ids])).logits[0]
        out[f"logits.{s}"] = logits
        lp = torch.log_softmax(logits[:-1], -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        lps.append(lp)
        for t in range(len(ids) - 1):
            loss = loss + token_weight(i) * lp[t]
            i += 1
    if "num_experts_per_tok" in config:
        record_router_losses(out, model, config)
    loss.backward()
    out["logprobs"] = torch.cat(lps)
    for key, p in params.items():
        for ours, part in unfused(config["model_type"], key, p.grad):
            out["grad." + ours] = part.clone()
    matrices = [p for p in params.values() if p.dim() > 1]
    rest = [p for p in params.values() if p.dim() <= 1]
    opt = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=rest, weight_decay=0.0)], lr=1e-2,
                            betas=(0.9, 0.95), eps=1e-8)
    out["grad_norm"] = torch.nn.utils.clip_grad_norm_(params.values(), 1.0).reshape(1)
    opt.step()
    for key, p in params.items():
        for ours, part in unfused(config["model_type"], key, p):
            out["step." + ours] = part
    with open(f"{folder}/{name}.bin", "wb") as f:
        for key, v in out.items():
            v = v.detach().numpy().astype("<f4").ravel()
            f.write(struct.pack("<I", len(key)) + key.encode() + struct.pack("<I", v.size) + v.tobytes())
    with open(f"{folder}/{name}.json", "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    print(name, sum(p.numel() for p in params.values()), float(out["grad_norm"]))


if __name__ == "__main__":
    torch.manual_seed(0)
    for n, e in MODELS.items():
        record(n, e, sys.argv[1])
