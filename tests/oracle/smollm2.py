#!/usr/bin/env python3
"""SmolLM2-135M-Instruct from a GGUF file: Cairn's export and Cairn's own numbers against transformers and tokenizers.

    python tests/oracle/smollm2.py BIN BUILD FILE.gguf WORK

BIN and BUILD hold the programs and build/tests/tools/dump_logits; WORK is a new folder.  Prints one line a check, `name value goal
ok|short`; exits 1 where one is short.  The reference is transformers on the folder that `cairn export` wrote, in float32,
after its weights and ids were compared with transformers' own reading of the GGUF.
"""
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BIN, BUILD, GGUF, WORK = (os.path.abspath(a) for a in sys.argv[1:5])
TEXTS = ["What is 12 + 30?", "Name three colours; say <|im_end|> twice, then \u00e9\u4e2d\U0001f600.", "def f(x):\n    return x*1234567",
         "", " ", "\t\n\n  x", "It's 3.14159 o'clock; don't panic!", "\u00dcber \u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \U0001f468\u200d\U0001f469\u200d\U0001f467",
         "<|im_start|>user\nhi<|im_end|>\n", "a" * 300, "1234567890" * 20, "e\u0301 \u1e9b\u0323 \u212b"]
PROMPTS = ["Explain in detail why the sky is blue.", "Write a long story about a fox and a lighthouse keeper.",
           "Explain photosynthesis step by step.", "Write an essay about the history of bread.", "Describe how a bicycle works, part by part.",
           "Write a Python program that sorts a list in three ways.", "Tell me about the life of Marie Curie.",
           "List twenty animals and one fact about each.", "Summarise the plot of Romeo and Juliet.", "How do I plant a vegetable garden?",
           "Write a letter to a friend about a trip to the mountains.", "What are prime numbers and why do they matter?",
           "Give me a recipe for pancakes with every step.", "Describe a rainy day in a big city.", "How does a computer add two numbers?",
           "Compare cats and dogs as pets.", "Explain how vaccines work.", "What happened in the French Revolution?",
           "Write a dialogue between the Sun and the Moon.", "What is 17 plus 25? Explain every step."]
NEW, short = 64, 0


def row(name, value, goal, ok):
    global short
    short += not ok
    print(f"{name}\t{value}\t{goal}\t{'ok' if ok else 'short'}", flush=True)


def cairn(*args):
    subprocess.run([os.path.join(BIN, "cairn"), *args], check=True, stdout=subprocess.DEVNULL)


def load(folder, **kw):
    return (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **kw).eval(),
            AutoTokenizer.from_pretrained(folder, **kw))


def check_export(model, tok):
    ref, ref_tok = load(os.path.dirname(GGUF), gguf_file=os.path.basename(GGUF))
    mine, theirs = model.state_dict(), ref.state_dict()
    differ = [k for k in theirs if not torch.equal(theirs[k], mine.get(k, torch.zeros(0)))]
    row("SmolLM2 export: tensors that differ from transformers' reading of the GGUF", len(differ), 0, not differ)
    bad = sum(ref_tok(t).input_ids != tok(t).input_ids for t in TEXTS)
    row(f"SmolLM2 export: texts of {len(TEXTS)} whose ids differ", bad, 0, bad == 0)


def chat(tok, prompt):
    text = tok.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    return tok.encode(text, add_special_tokens=False)


def check_logits(model, tok, ckpt):
    seqs = [chat(tok, p) for p in PROMPTS[:6]] + [tok(TEXTS[7] * 20).input_ids]
    out = subprocess.run([os.path.join(BUILD, "tests/tools/dump_logits"), ckpt], check=True, stdout=subprocess.PIPE,
                         input="".join(" ".join(map(str, s)) + "\n" for s in seqs).encode()).stdout
    got, at, worst = np.frombuffer(out, np.float32).reshape(-1, model.config.vocab_size), 0, 0.0
    for s in seqs:
        with torch.no_grad():
            want = model(torch.tensor([s])).logits[0].numpy()
        worst = max(worst, float(np.abs(got[at:at + len(s)] - want).max() / np.abs(want).max()))
        at += len(s)
    row(f"SmolLM2 logits, float32, {at} positions: worst difference over the largest logit", f"{worst:.2e}", 1e-5, worst <= 1e-5)


def rollout(ckpt):
    path, out = os.path.join(WORK, "prompts.jsonl"), os.path.join(WORK, "greedy")
    with open(path, "w") as f:
        f.writelines(json.dumps({"prompt": p}) + "\n" for p in PROMPTS)
    cairn("rollout", ckpt, "--prompts", path, "-o", out, "--split", "validation", "policy.precision=float32",
          "policy.generation.temperature=0", f"policy.generation.max_new_tokens={NEW}")
    with h5py.File(os.path.join(out, "samples-0000.h5")) as f:
        ids, off, n, who = f["token_ids"][:], f["token_ids_offset"][:], f["prompt_length"][:], f["prompt_id"][:]
    return {int(w): (ids[a:b].tolist(), int(p)) for w, a, b, p in zip(who, off, off[1:], n)}


def check_greedy(model, tok, ckpt):
    mine, differ, worst, tokens = rollout(ckpt), 0, 0.0, 0
    for i, p in enumerate(PROMPTS):
        ids, length = mine[i]
        if ids[:length] != chat(tok, p):
            row(f"SmolLM2 greedy: prompt {i} has other ids", 1, 0, False)
            continue
        want = model.generate(torch.tensor([ids[:length]]), attention_mask=torch.ones(1, length), do_sample=False,
                              max_new_tokens=NEW, pad_token_id=tok.pad_token_id or 0)[0].tolist()
        tokens += len(want) - length
        if ids == want:
            continue
        at = next((j for j, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
        with torch.no_grad():
            top = model(torch.tensor([want[:at]])).logits[0, -1].topk(2).values
        margin = float(top[0] - top[1])
        differ, worst = differ + 1, max(worst, margin)
        print(f"# prompt {i} ({p!r}) differs at token {at - length}: the reference's top-2 margin there is {margin:.3g}")
    row(f"SmolLM2 greedy: prompts of {len(PROMPTS)} ({tokens} tokens) that differ", differ, "0, or 1 at a margin < 1e-4",
        differ == 0 or (differ == 1 and worst < 1e-4))


def main():
    os.makedirs(WORK)
    ckpt, hf = os.path.join(WORK, "ckpt"), os.path.join(WORK, "hf")
    cairn("import-weights", GGUF, "-o", ckpt)
    cairn("export", ckpt, "-o", hf)
    model, tok = load(hf)
    check_export(model, tok)
    check_logits(model, tok, ckpt)
    check_greedy(model, tok, ckpt)
    sys.exit(short > 0)


main()
