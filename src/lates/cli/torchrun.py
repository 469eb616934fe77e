"""One command in several processes under `torchrun`."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def world() -> tuple[int, int]:
    """(rank, world size); (0, 1) without torchrun. Rank 0 writes and prints."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ["RANK"]), size) if size > 1 and "RANK" in os.environ else (0, 1)


@contextmanager
def process_group(device: str | None) -> Iterator[None]:
    """Join the other processes, if there are any; "cuda" then means one GPU for each process."""
    rank, size = world()
    if size == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    if device == "cuda":
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= gpus:
            raise ValueError(
                f"--device cuda: {os.environ['LOCAL_WORLD_SIZE']} processes were started here, and there are {gpus} GPUs. "
                "Start one for each GPU: torchrun --nproc-per-node gpu."
            )
        torch.cuda.set_device(local)
    dist.init_process_group()
    with warnings.catch_warnings():
        if rank > 0:
            warnings.simplefilter("ignore")  # every process computes the same and would repeat the warnings of rank 0
        yield
    dist.destroy_process_group()  # not after an error: torchrun then ends the others
