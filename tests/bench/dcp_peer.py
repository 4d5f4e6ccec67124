"""How fast PyTorch's distributed checkpoints load tensors into another layout: GB/s, the median of three, on standard output.

    dcp_peer.py CKPT DIR

The weights of a Cairn checkpoint of one rank are saved to DIR with torch.distributed.checkpoint, whole, by one process.  Then 4
processes load them as DTensors that are cut in 4 along their first dimension.  The time is that of load(), on the slowest process;
starting processes and saving are not in it.
"""
import os
import statistics
import sys
import time

import h5py
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, zeros

RANKS = 4


def weights(path):
    with h5py.File(os.path.join(path, "index.h5")) as f:
        return {k: torch.from_numpy(v[...].astype("float32")) for k, v in f["weights"].items()}


def load(rank, where, shapes, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (RANKS,))
    times = []
    for _ in range(3):
        state = {k: zeros(*s, device_mesh=mesh, placements=[Shard(0)]) for k, s in shapes.items()}
        dist.barrier()
        start = time.monotonic()
        dcp.load(state, checkpoint_id=where)
        dist.barrier()
        times.append(time.monotonic() - start)
    if rank == 0:
        out.put(statistics.median(times))
    dist.destroy_process_group()


def main():
    source, where = sys.argv[1:]
    state = weights(source)
    shapes = {k: tuple(v.shape) for k, v in state.items()}
    size = sum(v.numel() * 4 for v in state.values())
    dcp.save(state, checkpoint_id=where, no_dist=True)
    del state
    out = mp.get_context("spawn").SimpleQueue()
    mp.spawn(load, (where, shapes, 20000 + os.getpid() % 20000, out), nprocs=RANKS)
    print(size / out.get() / 1e9)


if __name__ == "__main__":
    main()
