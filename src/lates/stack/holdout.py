"""Sums over the hold-out, one chunk of rows at a time: all that the solvers see of the data.

A row enters only through its *excess*, the lead of every class over the label in every member,

    e_ick = m_ick - m_i,y_i,k          (the label's excess is 0; minus the excess is a margin),

in which a constant added to all classes of a row cancels. With z_ic = sum_k e_ick beta_k and p_i = softmax(z_i) the
log-loss, its gradient and its Hessian are means over rows,

    f = mean_i logsumexp_c z_ic,    g_k = mean_i E_p[e_k],    H_kl = mean_i Cov_p(e_k, e_l).

Members are [n, classes] tensors of any floating dtype on any device, memory-mapped or not; only one chunk at a time is
copied, to float64. Every number leaves this file as a sum over rows, through `reduce`: for rows that are sharded over
processes, an all-reduce of that sum is all there is to add.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from lates.runtime import map_threads, split_rows, thread_count
from lates.stack.losses import Loss

CHUNK_BYTES = {"cpu": 6 * 2**20, "cuda": 384 * 2**20}
"""The size of a CPU's cache, or enough to keep a GPU busy. Rows of other devices, which may lack float64, go to the CPU."""

Reduce = Callable[[Tensor], Tensor]
Members = Sequence[Tensor]


class Chunk(NamedTuple):
    """excess [members, rows, classes], labels [rows] and how much each row counts [rows]; None: all alike."""

    excess: Tensor
    labels: Tensor
    weights: Tensor | None = None


def in_this_process(sums: Tensor) -> Tensor:
    return sums


def rows_per_chunk(members: Members) -> int:
    """As many rows as fit into a chunk with the members' excess and two more arrays of its size."""
    numbers = CHUNK_BYTES[_chunk_device(members).type] // torch.float64.itemsize
    return max(1, numbers // ((2 * len(members) + 1) * members[-1].shape[1]))


def excess_chunks(members: Members, labels: Tensor, rows: int) -> Iterator[Chunk]:
    """Yield consecutive chunks of rows; a process whose shard is empty has one empty chunk."""
    device = _chunk_device(members)
    for start in range(0, max(len(labels), 1), rows):
        chunk_labels = labels[start : start + rows].to(device)
        shape = len(members), len(chunk_labels), members[-1].shape[1]
        excess = torch.empty(shape, dtype=torch.float64, device=device)
        for target, member in zip(excess, members, strict=True):
            target.copy_(member[start : start + rows])
        excess -= excess.gather(2, chunk_labels[None, :, None].expand(len(members), -1, 1))
        yield Chunk(excess, chunk_labels)


def combined(chunk: Chunk, weights: Tensor) -> Tensor:
    """The stack's logits [rows, classes], up to a constant in each row."""
    excess = chunk.excess
    return torch.mv(excess.flatten(1).T, weights.to(excess)).view(excess.shape[1:])


def _expand(chunk: Chunk, weights: Tensor) -> Tensor:
    """What the chunk adds to the log-loss, its gradient and its Hessian. Covariances are centred: where a row is sure of a
    class, uncentred moments cancel. torch's softmax would take several times as long for few classes."""
    excess = chunk.excess
    logits = combined(chunk, weights)
    peaks = logits.amax(dim=1, keepdim=True)
    probabilities = logits.sub_(peaks).exp_()
    totals = probabilities.sum(dim=1, keepdim=True)
    probabilities.mul_(totals.reciprocal())
    means = (excess * probabilities).sum(dim=2)
    centred = excess.sub_(means[:, :, None])
    losses = (peaks + totals.log())[:, 0]
    if chunk.weights is not None:
        losses, means, probabilities = (
            losses * chunk.weights,
            means * chunk.weights,
            probabilities * chunk.weights[:, None],
        )
    hessian = (centred * probabilities).flatten(1) @ centred.flatten(1).T
    return torch.cat([losses.sum()[None], means.sum(dim=1), hessian.flatten()])


def _expand_one(chunk: Chunk, weight: Tensor) -> Tensor:
    """The same for one member, a temperature, in half the time: moments around the row's peak need no centring, and powers
    of 2 are faster than those of e."""
    (excess,) = chunk.excess
    peaks = excess.amax(dim=1)
    lead = excess.sub_(peaks[:, None])
    powers = (lead * (weight / math.log(2))).exp2_()
    totals = powers.sum(dim=1)
    means = powers.mul_(lead).sum(dim=1) / totals
    squares = powers.mul_(lead).sum(dim=1) / totals
    terms = torch.stack([totals.log() + weight * peaks, means + peaks, squares - means.square()])
    return terms.sum(dim=1) if chunk.weights is None else terms @ chunk.weights


@dataclass(frozen=True)
class Holdout:
    """Labelled rows of members, in one part or several: the samples of MC dropout are parts that share their labels.

    passes  how many rows of a part each input has, such as views of it
    row_weights   how much each row of each part counts, 1 on average; None: all alike. Losses alone are weighted
    """

    parts: tuple[tuple[Members, Tensor], ...]
    reduce: Reduce = in_this_process
    passes: int = 1
    row_weights: tuple[Tensor, ...] | None = None

    @property
    def classes(self) -> int:
        return self.parts[0][0][-1].shape[1]

    def rows(self) -> int:
        """Rows of all parts, in all processes."""
        return int(self.reduce(torch.tensor([sum(len(labels) for _, labels in self.parts)], dtype=torch.float64)))

    def inputs(self) -> float:
        """Distinct inputs, in all processes."""
        return self.rows() / (len(self.parts) * self.passes)

    def deviations(self) -> Tensor:
        """The root mean square over rows and classes of each member's logits, centred by their mean over classes."""

        def squares(chunk: Chunk) -> Tensor:
            excess = chunk.excess
            return excess.sub_(excess.mean(dim=2, keepdim=True)).square_().sum(dim=(1, 2))

        return (self._sum(squares) / (self.rows() * self.classes)).sqrt()

    def log_loss(self, weights: Tensor) -> Tensor:
        """The log-loss, its gradient and its Hessian, row by row: [1 + members + members²]. Weights are >= 0."""
        expand = _expand_one if len(weights) == 1 else _expand
        return self._sum(lambda chunk: expand(chunk, weights.to(chunk[0])))

    def assumed_error(self) -> tuple[int, Tensor]:
        """In how many rows the head is wrong, and the mean excess [members] over a label that is wrong in every row, with
        the head's probabilities of the other classes."""

        def sums(chunk: Chunk) -> Tensor:
            excess, labels, _ = chunk
            others = excess[-1].scatter(1, labels[:, None], -torch.inf)
            wrong = (others.amax(dim=1) >= 0).sum()
            return torch.cat([wrong[None], (excess * others.softmax(dim=1)).sum(dim=(1, 2))])

        if self.classes == 1:
            return self.rows(), torch.zeros(len(self.parts[0][0]), dtype=torch.float64)
        wrong, *excess = self._sum(sums).tolist()
        return int(wrong), torch.tensor(excess, dtype=torch.float64) / self.rows()

    def sizes(self) -> Tensor:
        """The root mean square over classes of each row's centred logits, in each member [members, rows of this process]."""

        def of_share(share: Holdout) -> Tensor:
            centred = (excess.sub_(excess.mean(dim=2, keepdim=True)) for excess, _, _ in share._chunks())
            return torch.cat([each.square_().mean(dim=2).sqrt().float().cpu() for each in centred], dim=1)

        return torch.cat(map_threads(of_share, self._shares()), dim=1).nan_to_num(nan=torch.inf)

    def margins_moved(self, step: Tensor) -> float:
        """The norm of the changes of all margins (label over class) by a change of the weights."""
        return float(self._sum(lambda chunk: combined(chunk, step).square_().sum()[None]).sqrt())

    def statistics(self, loss: Loss, weights: Tensor) -> Tensor:
        """The sums over rows that the loss is a function of."""
        return self._sum(lambda chunk: loss.statistics(combined(chunk, weights), *chunk[1:]))

    @torch.inference_mode(False)
    @torch.enable_grad()
    def pull_back(self, loss: Loss, weights: Tensor, derivative: Tensor) -> tuple[Tensor, Tensor]:
        """The same sums, and the gradient [members] in the weights of derivative·sums."""

        def sums_and_gradient(chunk: Chunk) -> Tensor:
            logits = combined(chunk, weights).requires_grad_()
            of_rows = None if chunk.weights is None else chunk.weights.clone()
            sums = loss.statistics(logits, chunk.labels.clone(), of_rows)  # autograd refuses tensors of inference mode
            (slope,) = torch.autograd.grad(sums, logits, derivative.to(sums.device))
            return torch.cat([sums.detach(), chunk[0].flatten(1) @ slope.flatten()])

        sums = self._sum(sums_and_gradient)
        return sums[: len(derivative)], sums[len(derivative) :]

    def _sum(self, term: Callable[[Chunk], Tensor]) -> Tensor:
        """The sum of a term of each chunk: over threads that share the rows, and over all processes."""
        return self.reduce(_added(map_threads(lambda share: _added(map(term, share._chunks())), self._shares())))

    def _chunks(self) -> Iterator[Chunk]:
        for place, (members, labels) in enumerate(self.parts):
            rows = rows_per_chunk(members)
            chunks = excess_chunks(members, labels, rows)
            if self.row_weights is None:
                yield from chunks
                continue
            for chunk, weights in zip(chunks, self.row_weights[place].split(rows), strict=True):
                yield chunk._replace(weights=weights.to(chunk.excess))

    def _shares(self) -> "list[Holdout]":
        """The rows of each part, divided among threads."""
        numbers = sum(len(members) * len(labels) * self.classes for members, labels in self.parts)
        threads = thread_count(numbers, _chunk_device(self.parts[0][0]))
        divided = [
            [(tuple(member[rows] for member in members), labels[rows]) for rows in split_rows(len(labels), threads)]
            for members, labels in self.parts
        ]
        shares: list[Holdout] = [replace(self, parts=parts) for parts in zip(*divided, strict=True)]
        if self.row_weights is None:
            return shares
        weights = zip(*([of[rows] for rows in split_rows(len(of), threads)] for of in self.row_weights), strict=True)
        return [replace(share, row_weights=own) for share, own in zip(shares, weights, strict=True)]


def _added(terms: Iterable[Tensor]) -> Tensor:
    """The sum of the terms on their device, brought to the CPU once."""
    return functools.reduce(torch.add, terms).cpu()


def _chunk_device(members: Members) -> torch.device:
    device = members[-1].device
    return device if device.type in CHUNK_BYTES else torch.device("cpu")
