"""peer.py: PyTorch's times for the ops of bench_ops.c, under the same names: NAME, microseconds, between tabs.  Nothing and 1 where
PyTorch or its GPU is not there."""
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)
bf16, dev = torch.bfloat16, "cuda"


def seconds(f):
    f()
    torch.cuda.synchronize()
    best, n = 1e30, 1
    for turn in range(4):
        begin = time.perf_counter()
        for _ in range(n):
            f()
        torch.cuda.synchronize()
        s = (time.perf_counter() - begin) / n
        best = min(best, s)
        if not turn:
            n = max(1, int(0.015 / s))
    return best


def say(name, f):
    s = seconds(f)
    print(f"{name}\t{1e6 * s:.1f}", flush=True)
    return s


def rand(*shape, dtype=bf16):
    return torch.randn(*shape, dtype=dtype, device=dev)


a, b = rand(8192, 8192), rand(8192, 8192)
print(f"matrix\t{2 * 8192**3 / seconds(lambda: a @ b):.4g}", flush=True)
T, H, I, V = 8192, 4096, 14336, 128256
x, w = rand(T, H), rand(H)
say(f"rmsnorm forward {T} x {H}", lambda: F.rms_norm(x, (H,), w, 1e-5))
for n, k in ((H, H), (I, H), (H, I)):
    x, y, m = rand(T, k), rand(T, n), rand(n, k)
    say(f"linear {T} x {k} to {n}", lambda: F.linear(x, m))
    say(f"dx {T} x {n} to {k}", lambda: y @ m)
    say(f"dw {n} x {k}, {T} rows", lambda: y.t() @ x)
    for rows in (1, 4, 16, 64):
        say(f"linear {rows} x {k} to {n}", lambda: F.linear(x[:rows], m))
for each, d in ((T, 128), (T // 4, 128), (T // 4, 64)):
    q, k, v = (rand(T // each, h, each, d).requires_grad_() for h in (32, 8, 8))
    go = rand(T // each, 32, each, d)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    s = say(f"attention, {T // each} of {each}, head {d}", forward)
    both = seconds(lambda: torch.autograd.grad(forward(), (q, k, v), go))
    print(f"attention backward, {T // each} of {each}, head {d}\t{1e6 * (both - s):.1f}", flush=True)
z, target = rand(512, V, dtype=torch.float32), torch.randint(V, (512, 1), device=dev)
say(f"log-probabilities 512 x {V}", lambda: torch.log_softmax(z, -1).gather(1, target))
n = 256 << 20
p = torch.nn.Parameter(rand(n, dtype=torch.float32))
p.grad = rand(n, dtype=torch.float32)
say(f"AdamW of {n}", torch.optim.AdamW([p], fused=True).step)
