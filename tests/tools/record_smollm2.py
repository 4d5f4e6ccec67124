#!/usr/bin/env python3
"""What transformers makes of SmolLM2-135M-Instruct in a GGUF file, by its own reader of GGUF (dequantised to float32).

    python tests/tools/record_smollm2.py FILE.gguf          writes tests/data/smollm2.json
    python tests/tools/record_smollm2.py FILE.gguf FOLDER   compares a folder that `cairn export` made: ids and logits

Needs torch, transformers, gguf.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "smollm2.json")
QUESTIONS = ["What is 12 + 30?", "Name three colours; say <|im_end|> twice, then  \u00e9\u4e2d\U0001f600.", "def f(x):\n    return x*1234567"]


def load(folder, **kw):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **kw).eval()
    return model, AutoTokenizer.from_pretrained(folder, **kw)


def run(model, tok, question):
    text = tok.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
    ids = tok.encode(text, add_special_tokens=False)
    with torch.no_grad():
        return text, ids, model(torch.tensor([ids])).logits[0, -1]


def main():
    path = sys.argv[1]
    model, tok = load(os.path.dirname(path), gguf_file=os.path.basename(path))
    cases = [run(model, tok, q) for q in QUESTIONS]
    if len(sys.argv) > 2:
        model2, tok2 = load(sys.argv[2])
        for q, (text, ids, logits) in zip(QUESTIONS, cases):
            text2, ids2, logits2 = run(model2, tok2, q)
            print(f"text {text == text2}  ids {ids == ids2}  logits bit-equal {torch.equal(logits, logits2)}"
                  f"  worst {float((logits - logits2).abs().max()):.2e} of {float(logits.abs().max()):.2f}")
        return
    with open(OUT, "w") as f:
        json.dump([dict(question=q, text=text, ids=ids, top=int(z.argmax()), largest=float(f"{float(z.abs().max()):.6g}"),
                        logits={str(i): float(f"{float(z[i]):.7g}") for i in list(range(0, len(z), 997)) + [int(z.argmax())]})
                   for q, (text, ids, z) in zip(QUESTIONS, cases)], f)
        f.write("\n")


main()
