"""Records what the routers of transformers do in float32, and PyTorch's gradients through them.

    python tests/kernels/record_moe.py tests/data/moe.json

For each family: logits z [rows, E]; ids and weights of its router; the gradient with respect to z of sum(c w) with w in order of
slots, of the auxiliary loss of transformers (its own function, one layer) and of mean(logsumexp(z)^2).  transformers counts a
token once for each of its experts: its loss is k times E sum_i f_i P_i with f_i = count_i / (T k).
"""
import json
import sys

import torch
from transformers import MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeTopKRouter, load_balancing_loss_func
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

CASES = [
    ("mixtral", MixtralTopKRouter, MixtralConfig(num_local_experts=5, num_experts_per_tok=2, hidden_size=5), True),
    ("qwen2_moe", Qwen2MoeTopKRouter, Qwen2MoeConfig(num_experts=19, num_experts_per_tok=4, hidden_size=19), False),
    ("qwen3_moe", Qwen3MoeTopKRouter, Qwen3MoeConfig(num_experts=17, num_experts_per_tok=3, hidden_size=17, norm_topk_prob=True), True),
    ("qwen3_moe, as it is", Qwen3MoeTopKRouter, Qwen3MoeConfig(num_experts=17, num_experts_per_tok=16, hidden_size=17), False),
]
ROWS = 6


def flat(x):
    return [float(v) for v in x.detach().reshape(-1)]


def record(name, kind, config, norm):
    experts, k = config.hidden_size, config.num_experts_per_tok
    router = kind(config)
    with torch.no_grad():
        router.weight.copy_(torch.eye(experts))
    z = (2 * torch.randn(ROWS, experts)).requires_grad_()
    _, weights, ids = router(z)
    c = torch.randn(ROWS, k)
    aux = load_balancing_loss_func((z,), experts, k)
    grads = [torch.autograd.grad(loss, z, retain_graph=True)[0]
             for loss in ((c * weights).sum(), aux, torch.logsumexp(z, -1).pow(2).mean())]
    return dict(name=name, experts=experts, k=k, norm=norm, rows=ROWS, z=flat(z), ids=[int(i) for i in ids.reshape(-1)],
                weights=flat(weights), c=flat(c), aux=float(aux.detach()), dz=flat(grads[0]), dz_aux=flat(grads[1]), dz_z=flat(grads[2]))


if __name__ == "__main__":
    torch.manual_seed(3)
    with open(sys.argv[1], "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(record(*case)) for case in CASES) + "\n]\n")
