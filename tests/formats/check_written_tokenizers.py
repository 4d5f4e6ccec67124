#!/usr/bin/env python3
"""Do tokenizers and transformers give the recorded ids with the files that tokenizer_write_json() wrote?

Usage: CAIRN_SHARED=... TOKENIZER_OUT=DIR build/tests/formats/test_tokenizer_real && check_written_tokenizers.py DIR
(PyPI: tokenizers, transformers).  DIR holds NAME.gguf.json and NAME.gguf.config.json.
"""
import glob
import gzip
import json
import os
import shutil
import sys
import tempfile

from tokenizers import Tokenizer
from transformers import AutoTokenizer

bad = 0
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.gguf.json"))):
    name = os.path.basename(path).split(".")[0]
    engine = Tokenizer.from_file(path)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, os.path.join(folder, "tokenizer.json"))
        shutil.copy(path.replace(".gguf.json", ".gguf.config.json"), os.path.join(folder, "tokenizer_config.json"))
        auto = AutoTokenizer.from_pretrained(folder)
    vectors = gzip.open(os.path.join(os.environ["CAIRN_SHARED"], "data/tokenizers", name, "vectors.jsonl.gz"), "rt")
    n = wrong = 0
    for line in vectors:
        v = json.loads(line)
        n += 1
        wrong += engine.encode(v["text"], add_special_tokens=False).ids != v["ids"]
        wrong += auto.encode(v["text"], add_special_tokens=False) != v["ids"]
        wrong += engine.decode(v["ids"], skip_special_tokens=False) != v["decoded"]
    print(f"{name}: {n} vectors, {wrong} differences")
    bad += wrong
sys.exit(bad > 0)
