#!/usr/bin/env python3
"""Record tests/data/sentencepiece.json: a small SentencePiece BPE vocabulary, as a GGUF file has it, and its ids for some texts.

Needs the PyPI package sentencepiece.  Usage: record_sentencepiece.py > tests/data/sentencepiece.json
"""
import io
import json
import random
import sys

import sentencepiece as spm

WORDS = "the cairn is a pile of stones that marks way over moor and hill she said they seen metres high never stone ones".split()


def corpus(n):
    rng = random.Random(3)
    for _ in range(n):
        words = [rng.choice(WORDS) for _ in range(rng.randint(3, 12))]
        if rng.random() < 0.3:
            words.insert(0, str(rng.randint(0, 99999)))
        if rng.random() < 0.2:
            words.append("l'été où les cailloux marquent le chemin")
        yield " ".join(words) + rng.choice([".", "!", ",", "  ", ""])


def texts():
    rng = random.Random(4)
    parts = list("abehnost ") + ["stone", " the", "  ", "é", "12", "\n", "石", "cairn", "nes", "ones"]
    fixed = ["", " ", "a", "the stones", "  the  stones ", "stonesstonesonesonesthestones", "l'été 12345", "石の山\U0001f600",
             "thethethethethe moor", "that's\tone\nother", "\u2581a \u2581", "one" * 300]
    return fixed + ["".join(rng.choice(parts) for _ in range(rng.randint(4, 20))) for _ in range(60)]


def main():
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=corpus(2000), model_writer=model, model_type="bpe", vocab_size=500, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=1.0,
        pad_id=-1, num_threads=1, minloglevel=2)
    sp = spm.SentencePieceProcessor(model_proto=model.getvalue())
    kind = lambda i: (6 if sp.is_byte(i) else 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 5 if sp.is_unused(i) else 1)
    n = sp.get_piece_size()
    json.dump({"package": "sentencepiece " + spm.__version__, "tokens": [sp.id_to_piece(i) for i in range(n)],
               "scores": [sp.get_score(i) for i in range(n)], "types": [kind(i) for i in range(n)],
               "texts": texts(), "ids": [sp.encode(t) for t in texts()]},
              sys.stdout, ensure_ascii=False, separators=(",", ":"))
    print()


main()
