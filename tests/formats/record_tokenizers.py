#!/usr/bin/env python3
"""Record tests/data/tokenizers.json: small trained vocabularies and what the `tokenizers` engine makes of some texts.

Needs the PyPI package tokenizers.  Usage: record_tokenizers.py > tests/data/tokenizers.json
"""
import json
import random
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = """
the cairn is a pile of stones that marks the way over the moor and the hill
She said that she'd seen 12 of them, and they're 345 metres high; I don't know.
Die Steine stehen im Wind, und der Weg führt über die Höhe nach Süden.
Les cailloux marquent le chemin, où l'été était déjà passé.
камни лежат на дороге, дорога идёт дальше
def way(stones):\n    return sum(s.height for s in stones) + 1000 * len(stones)
石の山は道を示す。道は山を越える。 12345 67890
The THE the tHe cairns Cairn CAIRN  stones   stones
""".strip().split("\n")

TEXTS = [
    "", " ", "  ", "a", " the cairn", "the  cairn\n\n  x", "12345 3.14 1,000", "I'm we'LL IT'S don't",
    "caf\u00e9 cafe\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323", "\u00c5\u212b\u1112\u1161\u11ab\ud55c", "石の山は道 12",
    "камни лежат", "\U0001f600\U0001f469\u200d\U0001f680!", "a<s>b</s> c", "<s> the", "the <mask>  way", "x\t<mask>\n y",
    "<word>s <word> a<word> <word>", "\u00e9<word>\u0301", "<word>_ _<word> <word>-\u203f<word>", "<tag> <tag><tag>> <ta",
    "caf\u00e9tok cafe\u0301tok", "a\u2581b \u2581", "\u180e \u180ea", "tab\there  \r\n  new\r\rline \u00a0\u3000x",
    "a-b-c--d", "stones,stones; stones!", "   leading", "trailing   ", "\u0000nul\u0000", "\ufffd\u00ad", "\u2028sep\u2029",
    "\u0663\u0664 \u00b2\u00bd \u2167", "it's THE'S \u017f'\u017f", "!!! ??? ...", "<0x41> <0xE2>", "\\frac{1}{2}$ x^2",
    "\u0d3b\u0abc \u09fe\u0acd e\u09fe\u0301 \U00011935\U00011930 \U00011938", # marks and composites after Unicode 9
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
ADDED = [("<s>", {}), ("</s>", {}), ("<mask>", {"lstrip": True, "rstrip": True}), ("<word>", {"single_word": True}),
         ("<tag>", {"special": False}), ("<tag>>", {"special": False}),
         ("caf\u00e9tok", {"special": False, "normalized": True}), (" x", {"special": False, "rstrip": True})]


def fuzz(n):
    rng = random.Random(1)
    parts = list("ab \n\t.,'19") + ["the", "cairn", "<s>", "<mask>", "<word>", "<tag>", "\u0301", "\u0323", "\u00e9", "\u2581",
                                    "\u200d", "\u3042", "\u0e33", "\u1100", "\u1161", "\U00010330", "\u2460", " x", "\u00a0"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(3, 14))) for _ in range(n)]


def added(first, names=None):
    out = []
    for i, (content, flags) in enumerate(a for a in ADDED if names is None or a[0] in names):
        entry = {"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": True}
        entry.update(flags)
        out.append(entry)
    return out


def byte_model():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=360, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())["model"]


def spm_model(with_bytes):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=with_bytes))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if with_bytes else [])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=len(special) + 160, show_progress=False,
                                                      special_tokens=special))
    return json.loads(t.to_str())["model"]


def seq(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(regex, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def template(before, after):
    special = {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in before + after}
    item = [{"SpecialToken": {"id": n, "type_id": 0}} for n, _ in before]
    item += [{"Sequence": {"id": "A", "type_id": 0}}]
    item += [{"SpecialToken": {"id": n, "type_id": 0}} for n, _ in after]
    return {"type": "TemplateProcessing", "single": item, "pair": item + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}


def variants(n_bytes):
    bl = byte_level(False)
    dec = byte_level(True)
    nfc = {"type": "NFC"}
    few = added(n_bytes, ["<s>", "</s>"])
    every = added(n_bytes)

    def v(name, base, **members):
        return dict({"name": name, "base": base, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                     "post_processor": None, "decoder": None}, **members)

    yield v("gpt2", "bytes", pre_tokenizer=byte_level(True), decoder=dec, added_tokens=few,
            post_processor=template([("<s>", n_bytes)], [("</s>", n_bytes + 1)]))
    yield v("gpt2 with a blank in front", "bytes", pre_tokenizer=byte_level(True, True), decoder=dec, added_tokens=every)
    yield v("llama3", "bytes", pre_tokenizer=seq("pretokenizers", split(LLAMA3), bl), decoder=dec, added_tokens=few,
            model={"ignore_merges": True}, post_processor=seq("processors", byte_level(True), template([("<s>", n_bytes)], [])))
    yield v("qwen with every flag", "bytes", normalizer=nfc, pre_tokenizer=seq("pretokenizers", split(QWEN), bl), decoder=dec,
            added_tokens=every)
    yield v("smollm", "bytes", pre_tokenizer=seq("pretokenizers", {"type": "Digits", "individual_digits": True},
                                                 byte_level(True)), decoder=dec)
    yield v("digits, punctuation", "bytes", decoder=dec, pre_tokenizer=seq(
        "pretokenizers", {"type": "Digits", "individual_digits": False},
        {"type": "Punctuation", "behavior": "MergedWithNext"}, bl))
    for i, behavior in enumerate(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]):
        yield v("split " + behavior, "bytes", decoder=dec, pre_tokenizer=seq(
            "pretokenizers", split("[-s]", behavior, False), split(" ", behavior, i % 2 == 1, "String"), bl))
    yield v("whitespace", "bytes", pre_tokenizer=seq("pretokenizers", {"type": "Whitespace"}, bl), decoder=dec)
    yield v("whitespace split", "bytes", decoder=dec, pre_tokenizer=seq(
        "pretokenizers", {"type": "WhitespaceSplit"}, {"type": "CharDelimiterSplit", "delimiter": "-"}, bl))
    under = "\u2581"
    fuse = [{"type": "Replace", "pattern": {"String": under}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": under}
    spm = [dict(a, id=i) for i, a in enumerate([dict(added(0, ["<s>"])[0], content="<unk>")] + added(0, ["<s>", "</s>"]))]
    yield v("llama2", "spm", normalizer=seq("normalizers", {"type": "Prepend", "prepend": under}, blank),
            decoder=seq("decoders", *fuse, strip), added_tokens=spm, post_processor=template([("<s>", 1)], []))
    yield v("metaspace first", "spm", pre_tokenizer=metaspace("first", False), decoder=seq("decoders", *fuse, strip),
            added_tokens=spm)
    yield v("metaspace always", "spm", pre_tokenizer=metaspace("always", True), decoder=metaspace("always", True))
    yield v("metaspace never", "spm", pre_tokenizer=metaspace("never", True), decoder=metaspace("never", True))
    yield v("gemma", "spm", normalizer=blank, pre_tokenizer=split(" ", "MergedWithPrevious", False, "String"),
            decoder=seq("decoders", *fuse), added_tokens=spm)
    yield v("unknown fused", "chars", pre_tokenizer=metaspace("always", True))
    yield v("unknown apart", "chars", pre_tokenizer=metaspace("always", True), model={"fuse_unk": False},
            decoder={"type": "Fuse"})
    yield v("unknown dropped", "chars", pre_tokenizer=metaspace("always", True), model={"unk_token": None},
            decoder=metaspace("first", True))


def main():
    bases = {"bytes": byte_model(), "spm": spm_model(True), "chars": spm_model(False)}
    texts = TEXTS + fuzz(12)
    out = {"engine": "tokenizers " + tokenizers.__version__, "unicode": unicodedata.unidata_version, "bases": bases,
           "texts": texts, "variants": []}
    for variant in variants(len(bases["bytes"]["vocab"])):
        whole = {k: variant[k] for k in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")}
        whole.update(version="1.0", truncation=None, padding=None, model=dict(bases[variant["base"]], **variant.get("model", {})))
        t = Tokenizer.from_str(json.dumps(whole))
        ids = [t.encode(x, add_special_tokens=False).ids for x in texts]
        full = t.encode(texts[4]).ids
        decoded = [t.decode(i, skip_special_tokens=False) for i in ids]
        variant.update(ids=ids, full=full, decoded=[None if d == x else d for d, x in zip(decoded, texts)],
                       skipped=t.decode(ids[13], skip_special_tokens=True))
        out["variants"].append(variant)
    json.dump(out, sys.stdout, ensure_ascii=False, separators=(",", ":"))
    print()


main()
