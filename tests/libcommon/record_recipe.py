"""Record what OmegaConf, Hydra and torch make of scalars, overrides, a chain of recipes and learning-rate schedules.

    python record_recipe.py DIR [CONFIGS]
                                    writes scalars.tsv overrides.tsv chain.json torch_lr.tsv into DIR (tests/data/recipe)
                                    with the folder examples/configs of NeMo-RL also keys.txt: the leaf keys of its
                                    three base recipes

Needs omegaconf 2.3, hydra-core 1.3 and torch.
"""
import json, pathlib, sys
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

out = pathlib.Path(sys.argv[1])
for name, fn in dict(add=lambda a, b: a + b, mul=lambda a, b: a * b, div=lambda a, b: a / b, max=max).items():
    OmegaConf.register_new_resolver(name, fn)

SCALARS = """1 -1 +1 0 00 010 0o17 0x1F -0x1f 0x 0b101 0b2 1_000 _1 1_ 1:30 -1:30:15 1:75 01:30 12e3 12E-3 1e-8 1e8 1.e3 1.5e+2 1.5e 5.0e-6
.5 -.5 +.5 .5e3 .5e+3 1. -1. 1.0.0 1,000 1e 1e+ e1 0.1e1 1_0.5_0 ~ null Null NULL nULL None none true True TRUE tRUE false False FALSE yes Yes no
No on On off OFF y n Y N t T 2024-01-01 08:30 1-2 1/2 a:b - -- 1a nan inf NaN 0.0 -0 -0.0 00:03:50:00 3d 9223372036854775807 -9223372036854775808
1__0 0_1 08 1e05 1E5 +1e5 .e5 ._5 ... -_1 /a/b.jsonl torch.optim.AdamW val:accuracy 8GiB""".split()


def kind(v):
    return {type(None): "null", bool: "bool", int: "int", float: "real", str: "str"}[type(v)]


def shown(v):
    return {"null": "null", "bool": str(v).lower()}.get(kind(v), repr(v) if kind(v) == "real" else str(v))


with open(out / "scalars.tsv", "w") as f:
    for s in SCALARS:
        v = OmegaConf.create("k: " + s)["k"] if s not in ("-", "--") else s
        f.write(f"{s}\t{kind(v)}\t{shown(v)}\n")

OVERRIDES = ["1", "1e-6", "abc", "a b", "[1, 2.5, x]", "[]", "{}", "{a: 1, b: [2, {c: d}]}", "{a:1}", "'1'", '"x y"', "'it\\'s'", "true",
             "null", "", "/tmp/a.jsonl", "[a b, 'c,d']", "a:b", "1.0", "-3", "[[1], [2, 3]]", "{a: 'x: y'}", "val:accuracy"]
with open(out / "overrides.tsv", "w") as f:
    for o in OVERRIDES:
        v = OverridesParser.create().parse_override("k=" + o).value()
        plain = OmegaConf.to_container(OmegaConf.create({"k": v}))["k"]
        f.write(f"{o}\t{json.dumps(plain)}\n")


def load(path):
    """The rules of nemo-rl.md: parents depth first, null replaces, _override_ replaces."""
    own = OmegaConf.load(path)
    names = own.pop("defaults", [])
    base = OmegaConf.create({})
    for name in [names] if isinstance(names, str) else names:
        base = merge(base, load(path.parent / name))
    return merge(base, own)


def merge(base, over):
    for key in list(over.keys()):
        node = over._get_node(key)
        if OmegaConf.is_dict(node) and not OmegaConf.is_missing(over, key) and node._content is not None and not node._is_none():
            if node.pop("_override_", False):
                base[key] = node
                continue
            there = base._get_node(key) if key in base else None
            if OmegaConf.is_dict(there) and not there._is_none():
                merge(there, node)
                continue
        OmegaConf.update(base, key, node, merge=False)
    return base


chain = OmegaConf.to_container(load(out / "child.yaml"), resolve=True)
(out / "chain.json").write_text(json.dumps(chain, indent=1) + "\n")

LR = torch.optim.lr_scheduler
CASES = [
    ("[{name: LinearLR, kwargs: {start_factor: 0.25, end_factor: 1, total_iters: 3}}, {name: LinearLR, kwargs: {start_factor: 1, end_factor: 0, total_iters: 6}}, {milestones: [4]}]", 1.0),
    ("[{name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 0.1, end_factor: 1.0, total_iters: 5}}, {name: torch.optim.lr_scheduler.CosineAnnealingLR, kwargs: {T_max: 7, eta_min: 1.0e-4}}, {milestones: [5]}]", 3e-3),
    ("{name: ConstantLR, kwargs: {factor: 0.5, total_iters: 4}}", 2e-5),
    ("[{name: LinearLR}]", 1e-2),
    ("[{name: ConstantLR}, {name: CosineAnnealingLR, kwargs: {T_max: 4}}, {name: LinearLR, kwargs: {start_factor: 0.5, total_iters: 3}}, {milestones: [2, 6]}]", 0.7),
]
with open(out / "torch_lr.tsv", "w") as f:
    for text, base in CASES:
        cfg = OmegaConf.to_container(OmegaConf.create("k: " + text))["k"]
        cfg = cfg if isinstance(cfg, list) else [cfg]
        opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
        parts = [getattr(LR, c["name"].split(".")[-1])(opt, **c.get("kwargs", {})) for c in cfg if "name" in c]
        miles = [c["milestones"] for c in cfg if "milestones" in c]
        sched = LR.SequentialLR(opt, parts, milestones=miles[0]) if miles else parts[0]
        lrs = []
        for _ in range(12):
            lrs.append(opt.param_groups[0]["lr"])
            opt.step()
            sched.step()
        f.write(f"{base!r}\t{text}\t{' '.join(map(repr, lrs))}\n")


def leaves(node, path=()):
    if OmegaConf.is_dict(node) and len(node):
        for key in node:
            yield from leaves(node._get_node(key), path + (str(key),))
    else:
        yield ".".join(path)


if len(sys.argv) > 2:
    names = set()
    for recipe in "grpo_math_1B.yaml", "grpo_math_1B_megatron.yaml", "sft.yaml":
        names |= set(leaves(OmegaConf.load(pathlib.Path(sys.argv[2]) / recipe))) - {"defaults"}
    (out / "keys.txt").write_text("".join(n + "\n" for n in sorted(names)))
