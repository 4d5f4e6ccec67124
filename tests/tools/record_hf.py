#!/usr/bin/env python3
"""Tiny Hugging Face folders and what transformers computes with them.

    python tests/tools/record_hf.py        writes tests/data/hf-tiny-NAME/ and tests/data/hf-tiny.json

The dimensions are pairwise distinct, and heads * head_dim is hidden_size in none but qwen2.  llama: untied, float32, one file.
qwen2: tied, bfloat16, two shards, a config without attention_bias.  qwen3: untied, float16, norms on q and k.
Needs torch, transformers, tokenizers.
"""
import json
import os
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
TEXT = ["one two three four five six seven eight nine ten", "what is two and three? it is five."]
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

MODELS = {
    "llama": (dict(model_type="llama", hidden_size=12, num_attention_heads=3, num_key_value_heads=1, head_dim=6,
                   intermediate_size=28, num_hidden_layers=2, vocab_size=277, rms_norm_eps=1e-5,
                   max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1),
              torch.float32, "5GB"),
    "qwen2": (dict(model_type="qwen2", hidden_size=24, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=40, num_hidden_layers=2, vocab_size=281, max_position_embeddings=64,
                   tie_word_embeddings=True, bos_token_id=0, eos_token_id=1),
              torch.bfloat16, "16KB"),
    "qwen3": (dict(model_type="qwen3", hidden_size=14, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
                   intermediate_size=26, num_hidden_layers=2, vocab_size=275, max_position_embeddings=64,
                   tie_word_embeddings=False, bos_token_id=0, eos_token_id=[1, 0]),
              torch.float16, "5GB"),
}


def tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|im_start|>", eos_token="<|im_end|>",
                                   pad_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    return fast


def main():
    expected = {}
    tok = tokenizer()
    for i, (name, (keys, dtype, shard)) in enumerate(MODELS.items()):
        out = os.path.join(DATA, "hf-tiny-" + name)
        shutil.rmtree(out, ignore_errors=True)
        torch.manual_seed(100 + i)
        config = AutoConfig.for_model(**keys, attn_implementation="eager", dtype=dtype)
        model = AutoModelForCausalLM.from_config(config).to(dtype)
        with torch.no_grad():
            for p in model.parameters():
                # Norms and biases too: a weight that is lost must show.
                p.add_((0.25 * torch.randn(p.shape)).to(dtype))
        model.save_pretrained(out, max_shard_size=shard)
        tok.save_pretrained(out)
        wide = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
        ids = [2 + (37 * k + 11 * i) % (keys["vocab_size"] - 2) for k in range(9)]
        with torch.no_grad():
            logits = wide(torch.tensor([ids])).logits[0, -1]
        expected[name] = dict(ids=ids, logits=[float(f"{x:.9g}") for x in logits.tolist()],
                              text="two and <|im_end|>six?", text_ids=tok.encode("two and <|im_end|>six?"))
        print(name, sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out)), sorted(os.listdir(out)))
    with open(os.path.join(DATA, "hf-tiny.json"), "w") as f:
        json.dump(expected, f)
        f.write("\n")


main()
