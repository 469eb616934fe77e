"""The processes that calibrate together: each holds its share of the rows, all hold the same sums.

Whatever is decided from data is decided from sums over all processes, so that all decide alike, and an exchange met by one
is met by all. A process that fails would break that: the others would wait for it. So every exchange is, or begins with, an
envelope of one form: a word on health, and room for a small sum. A process that fails sends one that says so in place of its
next: all stop, and say why.

In one process all of this is nothing at all.
"""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

Shares = Literal["dealt", "own", "whole"]
"""Under torch.distributed. "dealt": every process passes the same loaders, whose batches are dealt out among them; "own":
each passes loaders of rows that no other has; "whole": this process works alone."""

HOST = torch.device("cpu")
ENVELOPE = 4096
"""Numbers in an envelope, in float64: exact for the counts and labels that travel in it too."""


class OtherProcessError(Exception):
    """Raised where this process is sound but another has failed, or cannot be reached."""


@dataclass(frozen=True)
class Team:
    """`size` processes, this one at `place`, the first at 0. As a context it tells the others if the body fails.

    device  where tensors travel if the group cannot carry those of the host (nccl)
    dealt   every process passes the same loaders
    """

    place: int = 0
    size: int = 1
    device: torch.device = HOST
    dealt: bool = True

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes of tensors of one shape and dtype: the same bits everywhere."""
        if self.size == 1:
            return values
        values = values.detach()
        if values.numel() <= ENVELOPE:
            return self._mail(values.flatten()).view(values.shape).to(values)
        target = values.device if values.device.type in _carried_types() else self.device
        carried = values.to(target).clone(memory_format=torch.contiguous_format)
        self._mail()
        self._exchange(lambda: dist.all_reduce(carried))
        return carried.to(values.device)

    def first(self, values: Tensor) -> Tensor:
        """The first process's tensor, of the shape that all have."""
        return self.sum(values if self.place == 0 else torch.zeros_like(values))

    def gather(self, item: Any) -> list[Any]:
        """Every process's item, small and picklable, in their order."""
        if self.size == 1:
            return [item]
        self._mail()
        return self._gather(item)

    def neighbours(self) -> int:
        """How many of the processes share this machine, this one included."""
        return self.gather(socket.gethostname()).count(socket.gethostname())

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        """Wait for the others, or tell them of a fault. An interrupt ends the process, which they notice by themselves."""
        if self.size == 1:
            return
        if fault is None:
            self._mail()
        elif isinstance(fault, Exception) and not isinstance(fault, OtherProcessError):
            with suppress(OtherProcessError):  # whoever cannot be told need not be; this process's own fault matters
                self._mail(fault=fault)

    def _mail(self, values: Tensor | None = None, fault: BaseException | None = None) -> Tensor:
        """Exchange envelopes: the sum of the few `values`, unless any process has failed. Then all hear of it, and those
        that are sound raise too."""
        envelope = torch.zeros(1 + ENVELOPE, dtype=torch.float64, device=self.device)
        envelope[0] = fault is not None
        used = 0 if values is None else len(values)
        if values is not None:
            envelope[1 : 1 + used] = values
        self._exchange(lambda: dist.all_reduce(envelope))
        if envelope[0] > 0:
            told = self._gather(None if fault is None else f"{type(fault).__name__}: {fault}")
            if fault is None:
                place, reason = next((place, reason) for place, reason in enumerate(told) if reason is not None)
                raise OtherProcessError(f"Process {place} of {self.size} failed, so all stopped. {reason}")
        return envelope[1 : 1 + used]

    def _gather(self, item: Any) -> list[Any]:
        items: list[Any] = [None] * self.size
        self._exchange(lambda: dist.all_gather_object(items, item))
        return items

    def _exchange(self, exchange: Callable[[], object]) -> None:
        try:
            with self._on_device():
                exchange()
        except (RuntimeError, ValueError) as fault:
            raise OtherProcessError(
                f"Process {self.place} of {self.size} could not reach the others ({fault}). Either one of them died, or not "
                'all of them called calibrate: under torch.distributed all must, or one alone with shares="whole".'
            ) from fault

    def _on_device(self) -> AbstractContextManager[object]:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()


def _carried_types() -> list[str]:
    """The types of devices whose tensors the group can carry."""
    return [part.partition(":")[0] for part in dist.get_backend_config().split(",")]


ALONE = Team()


def form_team(shares: Shares, device: torch.device) -> Team:
    """The processes of torch.distributed's default group, if there is one and this process is not to work alone."""
    if shares not in get_args(Shares):
        raise ValueError(f'shares="{shares}": expected one of {", ".join(get_args(Shares))}.')
    if shares == "whole" or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    if HOST.type in _carried_types():
        carrier = HOST
    elif device.type == "cuda":
        carrier = device
    else:
        carrier = torch.device("cuda", torch.cuda.current_device())
    return Team(dist.get_rank(), dist.get_world_size(), carrier, shares == "dealt")
