"""One command in several processes, as `torchrun` starts them: they join in a group, and the first speaks for all."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def is_first() -> bool:
    """Whether this process is the one that writes and prints; also where it is the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str | None) -> Iterator[None]:
    """In a group with the other processes that were started, if any were: over gloo, and over nccl between graphics cards.

    "cuda" is then each process's own card. The user's functions are called inside, so that they may ask who they are.
    """
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield
        return
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available() and device != "cpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not is_first():
        warnings.simplefilter("ignore")  # all come to the same, and so do their warnings
    dist.init_process_group()
    yield
    dist.destroy_process_group()  # after a fault the process ends, and waits for nobody
