"""One command in several processes, as `torchrun` starts them: they join in a group, and the first speaks for all."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def is_first() -> bool:
    """Whether this process is the one that writes and prints; also where it is the only one."""
    return not _are_several() or os.environ["RANK"] == "0"


def _are_several() -> bool:
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


@contextmanager
def joined(device: str | None) -> Iterator[None]:
    """In a group with the other processes that were started, if any were: over gloo, and over nccl between graphics cards.

    "cuda" is then each process's own card. The user's functions are called inside, so that they may ask who they are.
    """
    if not _are_several():
        yield
        return
    import torch
    import torch.distributed as dist

    if device == "cuda":
        torch.cuda.set_device(_own_card(torch.cuda.device_count()))
    dist.init_process_group()
    with warnings.catch_warnings():
        if not is_first():
            warnings.simplefilter("ignore")  # all come to the same, and so do their warnings
        yield
    dist.destroy_process_group()  # after a fault the process ends, and waits for nobody


def _own_card(cards: int) -> int:
    place, processes = int(os.environ.get("LOCAL_RANK", "0")), os.environ.get("LOCAL_WORLD_SIZE", "several")
    if place >= cards:
        raise ValueError(
            f"--device cuda: {processes} processes were started here, and there are {cards} graphics cards. Start as many "
            "as there are cards: torchrun --nproc-per-node gpu."
        )
    return place
