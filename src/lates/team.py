"""The processes that calibrate together: each holds its share of the rows, all hold the same sums.

Whatever is decided from data is decided from sums over all processes, so that all decide alike, and an exchange met by one
is met by all. A process that fails would break that: the others would wait for it. So every exchange begins with a word on
health, of one form everywhere, and a process that fails says so in place of its next one: all stop, and say why.

In one process all of this is nothing at all.
"""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

Shares = Literal["dealt", "own", "whole"]
"""Under torch.distributed. "dealt": every process passes the same loaders, whose batches are dealt out among them; "own":
each passes loaders of rows that no other has; "whole": this process works alone."""


HOST = torch.device("cpu")


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
        return self._carried(values, dist.all_reduce)

    def first(self, values: Tensor) -> Tensor:
        """The first process's tensor, of the shape that all have."""
        return self._carried(values, lambda carried: dist.broadcast(carried, src=0))

    def gather(self, item: Any) -> list[Any]:
        """Every process's item, small and picklable, in their order."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        self._exchange_health(None)
        self._exchange(lambda: dist.all_gather_object(items, item))
        return items

    def neighbours(self) -> int:
        """How many of the processes share this machine, this one included."""
        return self.gather(socket.gethostname()).count(socket.gethostname())

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        """An interrupt ends the process, which the others notice by themselves."""
        unheard = fault is None or (isinstance(fault, Exception) and not isinstance(fault, OtherProcessError))
        if self.size > 1 and unheard:
            self._exchange_health(fault)

    def _carried(self, values: Tensor, exchange: Callable[[Tensor], object]) -> Tensor:
        if self.size == 1:
            return values
        types = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
        target = values.device if values.device.type in types else self.device
        carried = values.detach().to(target).clone(memory_format=torch.contiguous_format)
        self._exchange_health(None)
        self._exchange(lambda: exchange(carried))
        return carried.to(values.device)

    def _exchange_health(self, fault: BaseException | None) -> None:
        """Learn whether any process has failed; if so, all hear why, and those that are sound raise too."""
        failed = torch.tensor([self.place + 1 if fault is not None else 0], device=self.device)
        self._exchange(lambda: dist.all_reduce(failed, dist.ReduceOp.MAX))
        teller = int(failed) - 1
        if teller < 0:
            return
        told = [f"{type(fault).__name__}: {fault}" if fault is not None else None]
        self._exchange(lambda: dist.broadcast_object_list(told, src=teller))
        if fault is None:
            raise OtherProcessError(f"Process {teller} of {self.size} failed, so all stopped. {told[0]}")

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


ALONE = Team()


def form_team(shares: Shares, device: torch.device) -> Team:
    """The processes of torch.distributed's default group, if there is one and this process is not to work alone."""
    if shares not in get_args(Shares):
        raise ValueError(f'shares="{shares}": expected one of {", ".join(get_args(Shares))}.')
    if shares == "whole" or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    if "cpu:" in dist.get_backend_config():
        carrier = HOST
    elif device.type == "cuda":
        carrier = device
    else:
        carrier = torch.device("cuda", torch.cuda.current_device())
    return Team(dist.get_rank(), dist.get_world_size(), carrier, shares == "dealt")
