#!/usr/bin/env python3
"""Steps of GRPO and its family, from rewards to weights, computed again in PyTorch (float64) and compared with Cairn.

    python tests/oracle/grpo_step.py BIN WORK [CASE ...]      compare; one line a check, `name value goal ok|short`
    python tests/oracle/grpo_step.py BIN WORK --record DIR    the data of tests/tools/grpo-oracle.sh

BIN holds the programs; WORK is a new folder.  Not part of `make check`: it needs torch, transformers, safetensors and h5py.

The model is a Hugging Face folder with weights far from any initialisation.  Its forward pass is written out here in float64 and
held against transformers.  From `cairn inspect --jsonl` only what was sampled is taken (ids, log-probabilities of the sampler, masks)
and the rewards; log-probabilities at the temperature, advantages, weights of tokens, losses, gradients, clipping, schedules and AdamW
are computed here, by autograd and torch.optim, over several updates and two steps, and compared with what score and train-step wrote.
"""
import copy
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

BIN, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
F = torch.float64
short = 0

BASE = {"vocab_size": 259, "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
MODELS = {
    "llama": BASE | {"model_type": "llama", "tie_word_embeddings": True},
    "qwen2": {k: v for k, v in BASE.items() if k != "head_dim"} | {"model_type": "qwen2", "tie_word_embeddings": False, "vocab_size": 263},
    "odd": BASE | {"model_type": "qwen3", "tie_word_embeddings": True, "hidden_size": 19, "intermediate_size": 29, "num_attention_heads": 6,
                   "num_key_value_heads": 3, "head_dim": 10, "vocab_size": 269, "max_position_embeddings": 700},
    "qwen3": BASE | {"model_type": "qwen3", "tie_word_embeddings": False, "num_key_value_heads": 1},
}
RECIPE = {
    "policy": {"precision": "float32", "train_global_batch_size": 8, "max_total_sequence_length": 40, "max_grad_norm": 0.5,
               "generation": {"max_new_tokens": 9, "temperature": 1.0},
               "optimizer": {"kwargs": {"lr": 4e-3, "weight_decay": 0.05, "eps": 1e-5, "betas": [0.85, 0.97]}},
               "scheduler": [{"name": "torch.optim.lr_scheduler.LinearLR",
                              "kwargs": {"start_factor": 0.5, "end_factor": 1.0, "total_iters": 4}},
                             {"name": "torch.optim.lr_scheduler.CosineAnnealingLR", "kwargs": {"T_max": 10, "eta_min": 1e-4}},
                             {"milestones": [1]}]},
    "grpo": {"num_prompts_per_step": 5, "num_generations_per_prompt": 4},
    "loss_fn": {"reference_policy_kl_penalty": 0.05},
    "data": {"train": {"data_path": "train.jsonl"}},
    "cairn": {"max_unscored": 0.5},
}
IS = {"use_importance_sampling_correction": True}
CASES = {                               # model, what is changed in loss_fn, grpo, policy; other: samples of another engine
    "default": ("llama", {}, {}, {}),
    "kl off, one update": ("qwen2", {"reference_policy_kl_penalty": 0}, {}, {"train_global_batch_size": 512}),
    "qwen3, hot": ("qwen3", {"reference_policy_kl_type": "k2"}, {}, {"generation": {"max_new_tokens": 9, "temperature": 1.7}}),
    "cold, top-k, top-p": ("qwen2", {"reference_policy_kl_type": "k1"}, {},
                           {"generation": {"max_new_tokens": 9, "temperature": 0.6, "top_k": 20, "top_p": 0.9}}),
    "greedy": ("llama", {}, {}, {"generation": {"max_new_tokens": 9, "temperature": 0.0}}),
    "mean baseline, plain": ("llama", {}, {"use_leave_one_out_baseline": False, "normalize_rewards": False}, {}),
    "mean baseline, divided": ("llama", {}, {"use_leave_one_out_baseline": False}, {}),
    "groups of 2": ("llama", {}, {"num_generations_per_prompt": 2}, {"train_global_batch_size": 3}),
    "sequence level": ("llama", {"token_level_loss": False}, {}, {}),
    "dual clip": ("qwen3", {"ratio_clip_c": 1.05, "ratio_clip_min": 0.02, "ratio_clip_max": 0.03}, {}, {"train_global_batch_size": 4}),
    "GSPO": ("qwen2", {"token_level_loss": False, "sequence_level_importance_ratios": True, "ratio_clip_min": 3e-2, "ratio_clip_max": 4e-2},
             {}, {"train_global_batch_size": 5}),
    "GSPO, corrected": ("qwen2", IS | {"token_level_loss": False, "sequence_level_importance_ratios": True}, {}, {"train_global_batch_size": 5}),
    "CISPO": ("llama", {"use_cispo": True, "ratio_clip_min": 0.05, "ratio_clip_max": 0.06}, {}, {"train_global_batch_size": 4}),
    "REINFORCE": ("llama", {"disable_ppo_ratio": True}, {}, {}),
    "on-policy ratio": ("llama", {"force_on_policy_ratio": True}, {}, {"train_global_batch_size": 20}),
    "importance": ("qwen3", IS, {}, {}),
    "TIS": ("qwen3", IS | {"truncated_importance_sampling_type": "tis", "truncated_importance_sampling_ratio": 1.2}, {}, {}),
    "icepop": ("llama", IS | {"truncated_importance_sampling_type": "icepop", "truncated_importance_sampling_ratio": 1.3,
                              "truncated_importance_sampling_ratio_min": 0.7}, {}, {}),
    "seq-mask-tis": ("llama", IS | {"truncated_importance_sampling_type": "seq-mask-tis", "truncated_importance_sampling_ratio": 1.05,
                                    "truncated_importance_sampling_ratio_min": 0.95}, {}, {}),
    "KL weighed by the policy": ("llama", {"use_on_policy_kl_approximation": True}, {}, {}),
    "KL clamps": ("llama", {"kl_input_clamp_value": 0.8, "kl_output_clamp_value": 0.1}, {}, {}),
    "KL clamps, none": ("llama", {"kl_input_clamp_value": None, "kl_output_clamp_value": None}, {}, {}),
    "overlong, error threshold, clip of advantages": ("llama", {}, {"overlong_filtering": True, "seq_logprob_error_threshold": 1.14,
                                                                     "advantage_clip_low": -0.8, "advantage_clip_high": 0.9}, {}),
    "shaped": ("llama", {}, {"reward_scaling": {"enabled": True, "source_min": 0.1, "source_max": 0.8, "target_min": -1.0, "target_max": 1.0},
                             "reward_shaping": {"enabled": True, "overlong_buffer_length": 4, "overlong_buffer_penalty": 0.5,
                                                "max_response_length": 9}}, {}),
    "stop properly": ("llama", {}, {"reward_shaping": {"enabled": True, "stop_properly_penalty_coef": 0.3}}, {}),
    "activation checkpointing": ("qwen3", {}, {}, {"dtensor_cfg": {"activation_checkpointing": True}}),
    "long, odd sizes": ("odd", {}, {"num_prompts_per_step": 5, "num_generations_per_prompt": 3},
                        {"train_global_batch_size": 5, "max_total_sequence_length": 650, "generation": {"max_new_tokens": 640}}),
    "megatron": ("llama", {}, {}, {"megatron_cfg": {"enabled": True, "optimizer": {
        "lr": 4e-3, "min_lr": 1e-3, "weight_decay": 0.05, "adam_eps": 1e-5, "clip_grad": 0.5},
        "scheduler": {"lr_decay_style": "constant", "lr_warmup_iters": 2, "lr_warmup_init": 1e-3, "lr_decay_iters": 10}}}),
}
# Rewards by a hash of the response, some missing.
JUDGE = r"""import json, sys, zlib
for line in sys.stdin:
    s = json.loads(line)
    h = zlib.crc32(repr((s["prompt_id"], s["sample_index"], s.get("text"))).encode())
    out = {"prompt_id": s["prompt_id"], "sample_index": s["sample_index"]}
    out.update({"error": "no verdict"} if h % 11 == 0 else {"reward": (h >> 8) % 5 / 4})
    print(json.dumps(out), flush=True)
"""


def row(name, value, goal, ok=None):
    global short
    ok = value <= goal if ok is None else ok
    short += not ok
    print(f"{name}\t{value:.3g}\t{goal:.3g}\t{'ok' if ok else 'short'}", flush=True)


def cairn(*args):
    r = subprocess.run([os.path.join(BIN, "cairn"), *map(str, args)], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"cairn {' '.join(map(str, args))}: {r.returncode}: {r.stderr}")
    return r.stdout


def make_model(name, cfg, seed):
    """A checkpoint whose weights are nothing like a fresh start: matrices 0.2, norms around 1, biases not 0."""
    with open(name + ".json", "w") as f:
        json.dump(cfg, f)
    cairn("import-weights", "--init", name + ".json", "--tokenizer", "bytes", "--chat-template", "plain", "--seed", seed, "-o", name + "0")
    cairn("export", name + "0", "-o", name + "-hf")
    g = torch.Generator().manual_seed(seed)
    w = load_file(name + "-hf/model.safetensors")
    for k in sorted(w):
        noise = torch.randn(w[k].shape, generator=g)
        w[k] = 1 + 0.3 * noise if "norm" in k else 0.25 * noise
    save_file(w, name + "-hf/model.safetensors", metadata={"format": "pt"})
    cairn("import-weights", name + "-hf", "-o", name)


def weights_of(ckpt, group="weights"):
    with h5py.File(os.path.join(ckpt, "index.h5")) as f:
        return {k: torch.from_numpy(np.array(v[()], dtype=np.float64)) for k, v in f[group].items()}


def norm(x, w, eps):
    return w * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def rotate(x, theta):
    n, d = x.shape[-2], x.shape[-1]
    a = torch.outer(torch.arange(n, dtype=F), theta ** (-torch.arange(0, d, 2, dtype=F) / d))
    c, s = a.cos().repeat(1, 2), a.sin().repeat(1, 2)
    x1, x2 = x[..., : d // 2], x[..., d // 2:]
    return x * c + torch.cat([-x2, x1], -1) * s


def forward(w, cfg, ids):
    """Logits [n, vocab] of one sequence."""
    h, kv, eps = cfg["num_attention_heads"], cfg["num_key_value_heads"], cfg["rms_norm_eps"]
    d = cfg.get("head_dim") or cfg["hidden_size"] // h
    n = len(ids)
    x = w["model.embed_tokens.weight"][ids]
    mask = torch.full((n, n), -torch.inf, dtype=F).triu(1)
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."

        def lin(v, name):
            out = v @ w[p + name + ".weight"].T
            return out + w[p + name + ".bias"] if p + name + ".bias" in w else out

        y = norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = (lin(y, f"self_attn.{c}_proj").view(n, -1, d) for c in "qkv")
        if p + "self_attn.q_norm.weight" in w:
            q, k = norm(q, w[p + "self_attn.q_norm.weight"], eps), norm(k, w[p + "self_attn.k_norm.weight"], eps)
        q, k, v = rotate(q.transpose(0, 1), cfg["rope_theta"]), rotate(k.transpose(0, 1), cfg["rope_theta"]), v.transpose(0, 1)
        k, v = k.repeat_interleave(h // kv, 0), v.repeat_interleave(h // kv, 0)
        a = torch.softmax(q @ k.transpose(1, 2) / d ** 0.5 + mask, -1) @ v
        x = x + lin(a.transpose(0, 1).reshape(n, h * d), "self_attn.o_proj")
        y = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        x = x + lin(torch.nn.functional.silu(lin(y, "mlp.gate_proj")) * lin(y, "mlp.up_proj"), "mlp.down_proj")
    x = norm(x, w["model.norm.weight"], eps)
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def logprobs(w, cfg, s, temperature):
    """Of the tokens after the prompt."""
    ids = torch.tensor(s["token_ids"])
    lp = torch.log_softmax(forward(w, cfg, ids) / temperature, -1)
    return lp[s["prompt_length"] - 1:-1].gather(1, ids[s["prompt_length"]:, None])[:, 0]


def advantages(samples, g):
    """Per sample."""
    scale, shape = g.get("reward_scaling", {}), g.get("reward_shaping", {})
    groups = {}
    for i, s in enumerate(samples):
        r = s["reward"] if s["reward_valid"] else None
        if r is not None and scale.get("enabled"):
            a, b, c, d = (scale[k] for k in ("source_min", "source_max", "target_min", "target_max"))
            r = c + (min(max(r, a), b) - a) / (b - a) * (d - c)
        if r is not None and shape.get("enabled"):
            if shape.get("stop_properly_penalty_coef") is not None:
                r *= shape["stop_properly_penalty_coef"] if s["truncated"] else 1
            else:
                buf, most = shape["overlong_buffer_length"], shape["max_response_length"]
                n = len(s["token_ids"]) - s["prompt_length"]
                r += min(-(n - (most - buf)) / buf * shape["overlong_buffer_penalty"], 0)
        groups.setdefault((s["prompt_id"], s["visit"]), []).append((i, r))
    out = [0.0] * len(samples)
    for members in groups.values():
        scored = [(i, r) for i, r in members if r is not None]
        if len(scored) < 2:
            continue
        for i, r in scored:
            rest = [q for j, q in scored if j != i] if g.get("use_leave_one_out_baseline", True) else [q for _, q in scored]
            a, sigma = r - np.mean(rest), np.std(rest, ddof=1) if len(rest) > 1 else 0.0
            if g.get("normalize_rewards", True) and sigma > 1e-6:
                a /= sigma + 1e-6
            out[i] = a
    low, high = g.get("advantage_clip_low"), g.get("advantage_clip_high")
    return [max(min(a, np.inf if high is None else high), -np.inf if low is None else low) for a in out]


def importance(s, prev, f):
    """Weights of the policy term, per token."""
    if not f.get("use_importance_sampling_correction"):
        return torch.ones_like(prev)
    m = s["mask"]
    d = torch.where(m, prev - s["gen"], 0.0)
    v = d.sum().exp().expand_as(d) if f.get("sequence_level_importance_ratios") else d.exp()
    kind, low, high = (f.get("truncated_importance_sampling_" + k) for k in ("type", "ratio_min", "ratio"))
    low = 0.0 if low is None else low
    if kind == "tis":
        v = v.clamp(low, high)
    elif kind == "icepop":
        v = torch.where((v >= low) & (v <= high), v, 0.0)
    elif kind == "seq-mask-tis":
        v = v * (low <= (d.sum() / m.sum()).exp() <= high)
    return v


def policy_loss(lp, s, f):
    a, m = s["advantage"], s["mask"]
    lo, hi = 1 - f.get("ratio_clip_min", 0.2), 1 + f.get("ratio_clip_max", 0.2)
    if f.get("disable_ppo_ratio"):
        return -a * lp
    if f.get("force_on_policy_ratio"):
        return -a * (lp - lp.detach()).exp()
    d = lp - s["prev"]
    if f.get("sequence_level_importance_ratios"):
        d = (torch.where(m, d, 0.0).sum() / m.sum()).expand_as(d)
    r = d.exp()
    if f.get("use_cispo"):
        return -a * r.clamp(lo, hi).detach() * lp
    loss = torch.maximum(-a * r, -a * r.clamp(lo, hi))
    if f.get("ratio_clip_c") is not None and a < 0:
        loss = torch.minimum(loss, torch.tensor(-a * f["ratio_clip_c"], dtype=F))
    return loss


def kl_loss(lp, s, f):
    d, top, most = s["ref"] - lp, f.get("kl_input_clamp_value", 20.0), f.get("kl_output_clamp_value", 10.0)
    d = d if top is None else d.clamp(-top, top)
    kind = f.get("reference_policy_kl_type", "k3")
    k = -d if kind == "k1" else d * d / 2 if kind == "k2" else d.exp() - 1 - d
    k = k if most is None else k.clamp(-most, most)
    return k * (lp - s["gen"]).exp().detach() if f.get("use_on_policy_kl_approximation") else k


def masked(v, m):
    return torch.where(m, v, 0.0).sum()


def update_loss(w, cfg, batch, f, temperature):
    kept = [s for s in batch if s["keep"]]
    tokens, total = sum(int(s["mask"].sum()) for s in kept), sum(0 * v.sum() for v in w.values())
    for s in kept:
        n = int(s["mask"].sum())
        if not n:
            continue
        lp = logprobs(w, cfg, s, temperature)
        one = masked(policy_loss(lp, s, f) * s["importance"], s["mask"])
        if f["reference_policy_kl_penalty"]:
            one = one + f["reference_policy_kl_penalty"] * masked(kl_loss(lp, s, f), s["mask"])
        total = total + (one / tokens if f.get("token_level_loss", True) else one / n / len(kept))
    return total


def optimizer_of(w, p):
    """torch.optim.AdamW and the schedule; matrices decay, vectors do not."""
    m = p.get("megatron_cfg", {})
    k = p["optimizer"]["kwargs"]
    lr, betas, eps, decay, clip = k["lr"], k["betas"], k["eps"], k["weight_decay"], p["max_grad_norm"]
    if m:
        o = m["optimizer"]
        lr, betas, eps, decay, clip = o["lr"], (0.9, 0.999), o["adam_eps"], o["weight_decay"], o["clip_grad"]
    groups = [{"params": [v for v in w.values() if v.dim() > 1], "weight_decay": decay},
              {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=lr, betas=tuple(betas), eps=eps)
    if m:
        s = m["scheduler"]
        init, n = s["lr_warmup_init"], s["lr_warmup_iters"]
        return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda t: min(1, (init + (lr - init) * t / n) / lr)), clip
    torch_lr = torch.optim.lr_scheduler
    parts = [getattr(torch_lr, x["name"].split(".")[-1])(opt, **x["kwargs"]) for x in p["scheduler"][:-1]]
    return opt, torch_lr.SequentialLR(opt, parts, milestones=p["scheduler"][-1]["milestones"]), clip


def other_engine(lines, rng):
    """The same samples as another engine would hand them in: no policy, its own log-probabilities, some tokens of an environment."""
    for s in lines:
        n = len(s["token_ids"]) - s["prompt_length"]
        s["loss_mask"] = [int(rng.random() > 0.2) for _ in range(n)]
        s["logprobs"] = [float(np.float32(v + rng.normal() * 0.15)) if m else None for v, m in zip(s["logprobs"], s["loss_mask"])]
        s["truncated"] = bool(rng.random() < 0.4)
        s["finish_reason"] = "length" if s["truncated"] else "stop"
        for k in ("policy", "fingerprint", "turns", "tokenizer_digest"):
            s.pop(k, None)
    return lines


def read_scored(path, w, ref, cfg, f, g, size, temperature):
    samples = [json.loads(x, parse_constant=None) for x in cairn("inspect", path, "--jsonl").splitlines()]
    worst = {"prev_logprobs": 0.0, "reference_logprobs": 0.0, "advantages": 0.0, "loss_weights/policy": 0.0}

    def differ(key, s, want, m):
        if key in s and m.any():
            got = torch.tensor([np.nan if v is None else v for v in s[key]], dtype=F)
            worst[key] = max(worst[key], float(((got - want).abs() / want.abs().clamp(min=1e-3))[m].max()))

    for s, a in zip(samples, advantages(samples, g)):
        n = len(s["token_ids"]) - s["prompt_length"]
        s["mask"] = torch.tensor(s.get("loss_mask", [1] * n), dtype=torch.bool)
        s["gen"] = torch.tensor([0.0 if v is None else v for v in s["logprobs"]], dtype=F)
        with torch.no_grad():
            s["prev"] = logprobs(w, cfg, s, temperature)
            s["ref"] = logprobs(ref, cfg, s, temperature)
            s["importance"] = importance(s, s["prev"], f)
        s["advantage"], s["keep"] = a, s["reward_valid"] and not (g.get("overlong_filtering") and s["truncated"])
        if g.get("seq_logprob_error_threshold") is not None and n and s["mask"].any():
            s["keep"] = s["keep"] and float((s["prev"] - s["gen"]).abs().exp()[s["mask"]].mean()) <= g["seq_logprob_error_threshold"]
        differ("prev_logprobs", s, s["prev"], s["mask"])
        differ("reference_logprobs", s, s["ref"], s["mask"])
        differ("advantages", s, torch.full((n,), a, dtype=F), s["mask"])
    for i in range(0, len(samples), size):
        kept = [s for s in samples[i:i + size] if s["keep"]]
        tokens = sum(int(s["mask"].sum()) for s in kept)
        for s in samples[i:i + size]:
            one = 1 / tokens if f.get("token_level_loss", True) and tokens else 1 / max(int(s["mask"].sum()), 1) / max(len(kept), 1)
            differ("loss_weights/policy", s, s["importance"] * one * s["keep"], s["mask"])
            if not torch.equal(torch.tensor(s["loss_weights/policy"])[~s["mask"]], torch.zeros(int((~s["mask"]).sum()))):
                worst["loss_weights/policy"] = np.inf
    return samples, worst


def compare(tag, got, want, start=None, goal=1e-5):
    """The worst parameter: difference over its norm, and over how far it moved."""
    rel = max((float((got[k] - want[k]).norm() / want[k].norm().clamp(min=1e-30)), k) for k in want)
    row(f"{tag}: {rel[1]}", rel[0], goal)
    if start:
        moved = max(float((got[k] - want[k]).norm() / (want[k] - start[k]).norm().clamp(min=1e-30)) for k in want)
        row(f"{tag}: of the way moved", moved, 1e-3)


def check_forward(cfg, w, folder):
    m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.arange(3, 40) * 7 % 256
    with torch.no_grad():
        d = (forward(w, cfg, ids) - m(ids[None]).logits[0].double()).abs().max()
    row(f"{folder}: forward against transformers", float(d), 1e-4)


def merged(into, changes):
    for k, v in changes.items():
        into[k] = merged(into.get(k, {}), v) if isinstance(v, dict) and isinstance(into.get(k, {}), dict) else v
    return into


def run_case(name, index):
    model, loss, grpo, policy = CASES[name]
    cfg, recipe = MODELS[model], merged(copy.deepcopy(RECIPE), {"loss_fn": loss, "grpo": grpo, "policy": policy})
    f, g, p = recipe["loss_fn"], recipe["grpo"], recipe["policy"]
    at, base = model, f"case{index}"
    with open(base + ".yaml", "w") as out:
        json.dump(recipe, out)
    rng = np.random.default_rng(index)
    ref, w = weights_of(model + "-ref"), {k: v.requires_grad_() for k, v in weights_of(at).items()}
    opt, sched, clip = optimizer_of(w, p)
    temperature = p["generation"]["temperature"] or 1.0
    for step in (1, 2):
        tag, mine = f"{name}, step {step}", f"{base}-{step}"
        cairn("rollout", at, "-c", base + ".yaml", "-o", mine + "-samples")
        source = mine + "-samples"
        if step == 2 or f.get("use_importance_sampling_correction") or g.get("overlong_filtering"):
            lines = [json.loads(x) for x in cairn("inspect", source, "--jsonl").splitlines()]
            source = mine + ".jsonl"
            with open(source, "w") as out:
                out.writelines(json.dumps(s) + "\n" for s in other_engine(lines, rng))
        cairn("score", source, "-c", base + ".yaml", "--policy", at, "--reference", model + "-ref", "--exec", f"{sys.executable} judge.py",
              "-o", mine + "-scored")
        samples, worst = read_scored(mine + "-scored", w, ref, cfg, f, g, p["train_global_batch_size"], temperature)
        for k, v in worst.items():
            row(f"{tag}: {k}", v, 2e-5)
        report = json.loads(cairn("train-step", at, mine + "-scored", "-c", base + ".yaml", "-o", mine))
        start, size, norms, losses = {k: v.detach().clone() for k, v in w.items()}, p["train_global_batch_size"], [], []
        for i in range(0, len(samples), size):
            opt.zero_grad()
            total = update_loss(w, cfg, samples[i:i + size], f, temperature)
            total.backward()
            losses.append(total.item())
            norms.append(float(torch.nn.utils.clip_grad_norm_(w.values(), clip)))
            opt.step()
        lr = opt.param_groups[0]["lr"]
        sched.step()
        row(f"{tag}: updates", abs(report["train/num_updates"] - len(norms)), 0)
        row(f"{tag}: rate", abs(report["train/lr"] / lr - 1), 1e-9)
        row(f"{tag}: gradient norm", abs(report["train/grad_norm"] / np.mean(norms) - 1), 1e-5)
        row(f"{tag}: loss", abs(report["train/loss"] - sum(losses)), 1e-5)
        row(f"{tag}: sequences that count", abs(report["train/global_valid_seqs"] - sum(s["keep"] and bool(s["mask"].any()) for s in samples)), 0)
        compare(f"{tag}: weights", weights_of(mine), {k: v.detach() for k, v in w.items()}, start)
        for slot in ("exp_avg", "exp_avg_sq"):
            compare(f"{tag}: {slot}", weights_of(mine, "optimizer/" + slot), {k: opt.state[v][slot] for k, v in w.items()}, goal=1e-4)
        at = mine


CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TALKS = [
    [("user", "2+2?"), ("assistant", "4")],
    [("system", "Be brief."), ("user", "caf\u00e9?"), ("assistant", "oui \U0001f600"), ("user", "\nso\n"), ("assistant", "\n\tyes \n")],
    [("user", "?"), ("assistant", "")],
    [("user", "x" * 30), ("assistant", "y" * 41), ("user", "z"), ("assistant", "w<|im_end|>")],
    [("assistant", "first word"), ("user", "?"), ("assistant", "last")],
]


def sft_rows(tok, only_final):
    """(ids, mask over ids): everything that an assistant's message adds but its header; no line end behind the last answer."""
    header, rows = "<|im_start|>assistant\n", []
    for talk in TALKS:
        messages, ids, mask = [{"role": r, "content": c} for r, c in talk], [tok.bos_token_id], [0]
        for i, m in enumerate(messages):
            before, after = (tok.apply_chat_template(messages[:k], tokenize=False) if k else "" for k in (i, i + 1))
            piece, last = after[len(before):], i + 1 == len(messages)
            learnt = m["role"] == "assistant" and (last or not only_final)
            cut = len(header) if learnt else len(piece)
            for text, count in ((piece[:cut], 0), (piece[cut:].rstrip("\n") if last and learnt else piece[cut:], 1)):
                new = tok(text, add_special_tokens=False).input_ids
                ids, mask = ids + new, mask + [count] * len(new)
            if last and learnt and ids[-1] != tok.eos_token_id:
                ids, mask = ids + [tok.eos_token_id], mask + [1]
        rows.append((ids, mask))
    return rows


def run_sft(name, model, only_final):
    cfg, base = dict(MODELS[model], max_position_embeddings=256), "sft-" + model
    subprocess.run(["cp", "-r", model + "-hf", base + "-hf"], check=True)
    with open(base + "-hf/chat_template.jinja", "w") as f:
        f.write(CHATML)
    with open(base + "-hf/config.json") as f:
        c = json.load(f) | {"max_position_embeddings": 256}
    with open(base + "-hf/config.json", "w") as f:
        json.dump(c, f)
    cairn("import-weights", base + "-hf", "-o", base)
    with open("talks.jsonl", "w") as f:
        f.writelines(json.dumps({"messages": [{"role": r, "content": c} for r, c in t]}) + "\n" for t in TALKS)
    recipe = merged(copy.deepcopy(RECIPE), {"policy": {"train_global_batch_size": 4, "max_total_sequence_length": 256},
                                            "sft": {"only_unmask_final": only_final}, "data": {"shuffle": False}})
    with open(base + ".yaml", "w") as f:
        json.dump(recipe, f)
    tok = AutoTokenizer.from_pretrained(base + "-hf")
    rows, w = sft_rows(tok, only_final), {k: v.requires_grad_() for k, v in weights_of(base).items()}
    opt, sched, clip = optimizer_of(w, recipe["policy"])
    at, start = base, {k: v.detach().clone() for k, v in w.items()}
    for step in (1, 2, 3):
        report = json.loads(cairn("train-step", at, "--data", "talks.jsonl", "-c", base + ".yaml", "-o", f"{base}-{step}"))
        at = f"{base}-{step}"
        batch = [rows[(4 * (step - 1) + i) % len(rows)] for i in range(4)]
        opt.zero_grad()
        tokens = sum(sum(m[1:]) for _, m in batch)
        total = sum(masked(-logprobs(w, cfg, {"token_ids": ids, "prompt_length": 1}, 1.0), torch.tensor(m[1:], dtype=torch.bool))
                    for ids, m in batch) / tokens
        total.backward()
        size = float(torch.nn.utils.clip_grad_norm_(w.values(), clip))
        opt.step()
        sched.step()
        row(f"{name}, step {step}: tokens that count", abs(report["train/global_valid_toks"] - tokens), 0)
        row(f"{name}, step {step}: loss", abs(report["train/loss"] / total.item() - 1), 1e-5)
        row(f"{name}, step {step}: gradient norm", abs(report["train/grad_norm"] / size - 1), 1e-5)
        compare(f"{name}, step {step}: weights", weights_of(at), {k: v.detach() for k, v in w.items()}, start)


def record(folder):
    """One step of three updates on made-up samples: start/, reference/ and expected/ (Hugging Face), samples.jsonl, recipe.yaml."""
    cfg = {"model_type": "qwen3", "vocab_size": 37, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
           "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
           "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 1,
           "architectures": ["Qwen3ForCausalLM"]}
    recipe = merged(copy.deepcopy(RECIPE), {"policy": {"train_global_batch_size": 7, "generation": {"temperature": 0.8}},
                                            "loss_fn": IS | {"ratio_clip_c": 1.08, "ratio_clip_min": 0.05, "ratio_clip_max": 0.07}})
    f, rng = recipe["loss_fn"], np.random.default_rng(5)
    h, q, kv = 12, 12, 4
    shapes = {"model.embed_tokens.weight": (37, h), "model.norm.weight": (h,), "lm_head.weight": (37, h)}
    for i in range(2):
        for k, v in {"input_layernorm": (h,), "post_attention_layernorm": (h,), "self_attn.q_norm": (4,), "self_attn.k_norm": (4,),
                     "self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, q),
                     "mlp.gate_proj": (20, h), "mlp.up_proj": (20, h), "mlp.down_proj": (h, 20)}.items():
            shapes[f"model.layers.{i}.{k}.weight"] = v
    models = {}
    for name in ("start", "reference"):
        models[name] = {k: torch.from_numpy(rng.normal(1.0 if "norm" in k else 0.0, 0.3, v).astype(np.float32))
                        for k, v in shapes.items()}
    models["reference"] = {k: 0.8 * v + 0.2 * models["reference"][k] for k, v in models["start"].items()}
    w = {k: v.to(F).requires_grad_() for k, v in models["start"].items()}
    ref, samples, t = {k: v.to(F) for k, v in models["reference"].items()}, [], recipe["policy"]["generation"]["temperature"]
    for prompt in range(5):
        head = rng.integers(2, 37, 1 + prompt).tolist()
        for i in range(4):
            n = 0 if (prompt, i) == (2, 1) else int(rng.integers(1, 9))
            s = {"prompt_id": prompt, "sample_index": i, "step": 1, "temperature": t, "token_ids": head + rng.integers(1, 37, n).tolist(),
                 "prompt_length": len(head), "text": str(rng.integers(0, 2)), "row": {"prompt": "?", "answer": "1"},
                 "loss_mask": [int(x) for x in rng.random(n) > 0.15]}
            with torch.no_grad():
                lp = logprobs(w, cfg, s, t)
            s["logprobs"] = [float(np.float32(v + 0.2 * rng.normal())) if m else None for v, m in zip(lp.tolist(), s["loss_mask"])]
            samples.append(s)
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/samples.jsonl", "w") as out:
        out.writelines(json.dumps(s, separators=(",", ":")) + "\n" for s in samples)
    with open(folder + "/recipe.yaml", "w") as out:
        json.dump(recipe, out, indent=1)
    opt, _, clip = optimizer_of(w, recipe["policy"])
    for s in samples:
        s["reward"], s["reward_valid"], s["visit"], s["keep"] = float(s["text"] == "1"), True, 0, True
    for s, a in zip(samples, advantages(samples, recipe["grpo"])):
        s["mask"], s["advantage"] = torch.tensor(s["loss_mask"], dtype=torch.bool), a
        s["gen"] = torch.tensor([0.0 if v is None else v for v in s["logprobs"]], dtype=F)
        with torch.no_grad():
            s["prev"], s["ref"] = logprobs(w, cfg, s, t), logprobs(ref, cfg, s, t)
            s["importance"] = importance(s, s["prev"], f)
    for i in range(0, len(samples), 7):
        opt.zero_grad()
        update_loss(w, cfg, samples[i:i + 7], f, t).backward()
        torch.nn.utils.clip_grad_norm_(w.values(), clip)
        opt.step()
    models["expected"] = {k: v.detach().to(torch.float32) for k, v in w.items()}
    for name, tensors in models.items():
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        with open(f"{folder}/{name}/config.json", "w") as out:
            json.dump(cfg, out)
        save_file(tensors, f"{folder}/{name}/model.safetensors", metadata={"format": "pt"})


def main():
    if sys.argv[3:4] == ["--record"]:
        folder = os.path.abspath(sys.argv[4])
        os.makedirs(WORK, exist_ok=True)
        os.chdir(WORK)
        return record(folder)
    os.makedirs(WORK, exist_ok=True)
    os.chdir(WORK)
    with open("judge.py", "w") as f:
        f.write(JUDGE)
    with open("train.jsonl", "w") as f:
        f.writelines(json.dumps({"prompt": "x" * (i % 7) + f"{i}+{i * i}=", "answer": str(i)}) + "\n" for i in range(20))
    for i, (name, cfg) in enumerate(MODELS.items()):
        make_model(name, cfg, 10 + i)
        make_model(name + "-ref", cfg, 20 + i)
        # A reference near the policy, as one is.
        a, b = load_file(name + "-hf/model.safetensors"), load_file(name + "-ref-hf/model.safetensors")
        save_file({k: 0.9 * a[k] + 0.1 * b[k] for k in a}, name + "-ref-hf/model.safetensors", metadata={"format": "pt"})
        subprocess.run(["rm", "-r", name + "-ref"], check=True)
        cairn("import-weights", name + "-ref-hf", "-o", name + "-ref")
        check_forward(cfg, weights_of(name), name + "-hf")
    for i, name in enumerate(CASES):
        if len(sys.argv) < 4 or name in sys.argv[3:]:
            run_case(name, i)
    if len(sys.argv) < 4 or "SFT" in sys.argv[3:]:
        run_sft("SFT", "qwen2", False)
        run_sft("SFT, last answer", "llama", True)
    sys.exit(short > 0)


torch.set_num_threads(1)
main()
