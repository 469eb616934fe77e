"""Sums over the hold-out, one chunk of rows at a time: all that the stack's solvers ever see of the data.

A row enters only through its *excess*, the lead of every class over the label in every member,

    e_ick = m_ick - m_i,y_i,k          (the label's own excess is 0; minus the excess is a margin),

which forgets whatever constant a member adds to all classes of a row. With z_ic = sum_k e_ick beta_k and
p_i = softmax(z_i) the log-loss, its gradient and its Hessian are means over rows,

    f = mean_i logsumexp_c z_ic,    g_k = mean_i E_p[e_k],    H_kl = mean_i Cov_p(e_k, e_l).

Of one member alone, a temperature's, the lead over the row's largest logit, t_ic = m_ic - max_c m_ic <= 0, does with fewer
operations: beta t has its peak at 0, and the moments of t lie near 0 where a row is sure of a class, so that nothing cancels,

    f = mean_i log sum_c exp(beta t_ic) - beta t_i,y_i,    f' = mean_i E_p[t] - t_i,y_i,    f" = mean_i Var_p(t).

Members are sequences of [n, classes] tensors, of any floating dtype and on any device, memory-mapped or not; they are
copied one chunk at a time only, in float64, or in float32 where a rough answer will do. Every number leaves this file as a
sum over rows, through `reduce`: where rows live in several processes, a `reduce` that sums a tensor over all of them is the
only thing to add.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lates.losses import Loss
from lates.threads import borrowed, in_threads, row_shares, thread_count

WORKING_BYTES = {
    "cpu": 3 * 2**21,
    "cuda": 3 * 2**27,
}  # devices without float64 are not here: their rows are brought to the CPU
LOG_2 = math.log(2)
SQUARES_IN_FLOAT32 = 1e-30  # in the mean, at least: those of float32 begin at 1e-45
LOOKS = 16  # by so much smaller are chunks of which most likely the first is all that is looked at

Reduce = Callable[[Tensor], Tensor]
Members = Sequence[Tensor]
Chunk = tuple[Tensor, Tensor]
Over = Literal["label", "peak"]


def in_this_process(sums: Tensor) -> Tensor:
    """The reducer of a hold-out that lives in one process."""
    return sums


def rows_per_chunk(members: Members, arrays: int, dtype: torch.dtype = torch.float64) -> int:
    """As many rows as keep so many arrays [rows, classes] within the processor's cache, or a graphics card busy."""
    return max(1, WORKING_BYTES[_chunk_device(members).type] // (dtype.itemsize * arrays * members[-1].shape[1]))


def excess_chunks(
    members: Members, labels: Tensor, rows: int, dtype: torch.dtype = torch.float64, over: Over = "label"
) -> Iterator[Chunk]:
    """Yield (excess [members, rows, classes], labels [rows]) for consecutive rows: the excess over the label, or the peak.

    Every chunk overwrites the one before. Where there are no rows, as some process may have none, there is one empty chunk.
    """
    device, classes = _chunk_device(members), members[-1].shape[1]
    rows = max(min(rows, len(labels)), 1)
    with borrowed(len(members) * rows * classes, dtype, device) as buffer:
        for start in range(0, max(len(labels), 1), rows):
            of_rows = labels[start : start + rows].to(device)
            excess = buffer[: len(members) * len(of_rows) * classes].view(len(members), len(of_rows), classes)
            for target, member in zip(excess, members, strict=True):
                target.copy_(member[start : start + rows])
            if over == "label":
                excess -= excess.gather(2, of_rows[None, :, None].expand(len(members), -1, 1))
            else:
                excess -= excess.amax(dim=2, keepdim=True)
            yield excess, of_rows


def combined(chunk: Chunk, weights: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The stack's logits [rows, classes], up to a constant in each row, and the labels."""
    excess, labels = chunk
    if len(excess) == 1:  # twice as quick as a product of matrices
        return torch.mul(excess.flatten(), weights.to(excess), out=out).view(excess.shape[1:]), labels
    return torch.mv(excess.flatten(1).T, weights.to(excess), out=out).view(excess.shape[1:]), labels


def sum_over(terms: Iterable[Tensor]) -> Tensor:
    """The sum of the chunks' terms, gathered on the device where they arise and brought to the CPU once."""
    return functools.reduce(torch.add, terms).cpu()


def log_loss_terms(chunk: Chunk, weights: Tensor, derivatives: int, scratch: Tensor) -> tuple[Tensor, ...]:
    """What a chunk adds to the log-loss and to its first derivatives, for weights beta / log 2: powers of 2 take half as
    long as those of e.

    peak [rows], total [rows]   2^peak · total is the softmax' denominator
    gradient [members]
    Hessian [members, members]  summed centred, for where a row is sure of a class, uncentred moments cancel

    The Hessian overwrites the chunk, and needs `scratch` [members + 1, rows, classes], all else [1, rows, classes]. Nothing is
    done here that can be done once for all chunks: threads wait for each other at each operation, however small.
    """
    excess, _ = chunk
    logits, _ = combined(chunk, weights, out=scratch[-1].flatten())
    peaks = logits.amax(dim=1)
    probabilities = logits.sub_(peaks[:, None]).exp2_()
    totals = probabilities.sum(dim=1)
    if derivatives == 0:
        return peaks, totals
    probabilities.mul_(totals.reciprocal()[:, None])
    if derivatives == 1:
        return peaks, totals, excess.flatten(1) @ probabilities.flatten()
    weighted = torch.mul(excess, probabilities, out=scratch[:-1])
    means = weighted.sum(dim=2)
    centred = excess.sub_(means[:, :, None])
    hessian = torch.mul(centred, probabilities, out=weighted).flatten(1) @ centred.flatten(1).T
    return peaks, totals, means.sum(dim=1), hessian


def log_loss_sums(peaks: Sequence[Tensor], totals: Sequence[Tensor], *derivatives: Sequence[Tensor]) -> Tensor:
    """The terms of all chunks summed, and packed: [value, gradient, Hessian row by row]."""
    value = LOG_2 * (torch.cat(list(peaks)).double() + torch.cat(list(totals)).double().log2()).sum()
    return torch.cat([value[None], *(torch.stack(list(terms)).double().sum(dim=0).flatten() for terms in derivatives)])


def log_loss_of_one(chunks: Iterator[Chunk], weight: Tensor, derivatives: int) -> Tensor:
    """The sums of `log_loss_sums` for one member of weight >= 0, from chunks of its excess over the peak; up to three
    derivatives: of t under p the mean, less the label's, the variance and the third central moment."""
    rows = [_moments_of_one(chunk, weight / LOG_2, derivatives) for chunk in chunks]
    leads, totals, *moments = (torch.cat(parts).double() for parts in zip(*rows, strict=True))
    for moment in moments:
        moment /= totals
    terms = [LOG_2 * totals.log2_().sum() - float(weight) * leads.sum()]
    if derivatives >= 1:
        terms.append(moments[0].sum() - leads.sum())
    if derivatives >= 2:
        terms.append(moments[1].sum() - moments[0].dot(moments[0]))
    if derivatives >= 3:
        terms.append(moments[2].sum() - moments[0].dot(3 * moments[1] - 2 * moments[0].square()))
    return torch.stack(terms)


def _moments_of_one(chunk: Chunk, binary: Tensor, derivatives: int) -> list[Tensor]:
    """Of each row the label's excess over the peak, and sum_c 2^(binary t_c) t_c^j for j = 0, …, derivatives."""
    (excess,), labels = chunk
    with borrowed(excess.numel(), excess.dtype, excess.device) as scratch:
        powers = torch.mul(excess, binary.to(excess), out=scratch.view(excess.shape)).exp2_()
        moments = [powers.sum(dim=1)]
        for _ in range(derivatives):
            moments.append(powers.mul_(excess).sum(dim=1))
    return [excess.gather(1, labels[:, None])[:, 0], *moments]


@dataclass(frozen=True)
class Holdout:
    """Labelled rows of members, in one part or several: MC dropout's samples are parts that share their labels."""

    parts: tuple[tuple[Members, Tensor], ...]
    reduce: Reduce = in_this_process
    chunk_rows: int | None = None
    dtype: torch.dtype = torch.float64

    def chunks(self, beside: int, over: Over = "label") -> Iterator[Chunk]:
        """Of as many rows as leave room for so many arrays [rows, classes] beside the chunk's own."""
        for members, labels in self.parts:
            rows = self.chunk_rows or rows_per_chunk(members, len(members) + beside, self.dtype)
            yield from excess_chunks(members, labels, rows, self.dtype, over)

    def total(self, sums: Callable[[Iterator[Chunk]], Tensor], beside: int = 1, over: Over = "label") -> Tensor:
        """What `sums` makes of the chunks, added up over threads that have rows of their own, and over all processes."""
        return self.reduce(sum_over(in_threads(lambda share: sums(share.chunks(beside, over)), self._shares())))

    def _shares(self) -> "list[Holdout]":
        """The rows of each part cut for threads."""
        elements = sum(len(members) * len(labels) * self.classes for members, labels in self.parts)
        count = thread_count(elements, _chunk_device(self.parts[0][0]))
        cut = [
            [(tuple(member[rows] for member in members), labels[rows]) for rows in row_shares(len(labels), count)]
            for members, labels in self.parts
        ]
        return [replace(self, parts=parts) for parts in zip(*cut, strict=True)]

    @property
    def classes(self) -> int:
        return self.parts[0][0][-1].shape[1]

    def rows(self) -> int:
        here = sum(len(labels) for _, labels in self.parts)
        return int(self.reduce(torch.tensor([here], dtype=torch.float64)))

    def deviations(self) -> Tensor:
        """The rms over rows and classes of each member's logits, centred by their mean over classes: [members].

        Rows are centred one by one, so that nothing cancels, and float32 will do but for members that are finer, or so large
        or small that their squares are not to be had in it.
        """

        def squares(chunks: Iterator[Chunk]) -> Tensor:
            lengths = (
                torch.linalg.vector_norm(excess.sub_(excess.mean(dim=2, keepdim=True)), dim=2) for excess, _ in chunks
            )
            return torch.cat(list(lengths), dim=1).double().square().sum(dim=1)

        fine = any(member.dtype == torch.float64 for member in self.parts[0][0])
        total = (self if fine else replace(self, dtype=torch.float32)).total(squares)
        numbers = self.rows() * self.classes
        if not bool((total.isfinite() & (total > SQUARES_IN_FLOAT32 * numbers)).all()):
            total = self.total(squares)
        return (total / numbers).sqrt()

    def every(self, stride: int) -> "Holdout":
        """The same with every `stride`-th row of each part; views, not copies."""
        thinned = tuple((tuple(m[::stride] for m in members), labels[::stride]) for members, labels in self.parts)
        return replace(self, parts=thinned)

    def log_loss(self, weights: Tensor, derivatives: int) -> Tensor:
        """Sums over all rows; packed as in `log_loss_sums`. Of one member there is a third derivative too."""
        if len(weights) == 1 and weights[0] >= 0:
            return self.total(lambda chunks: log_loss_of_one(chunks, weights, derivatives), over="peak")
        beside = 1 if derivatives < 2 else 1 + len(weights)

        def sums(chunks: Iterator[Chunk]) -> Tensor:
            first = next(chunks)
            _, rows, classes = first[0].shape
            binary = (weights / LOG_2).to(first[0])
            with borrowed(beside * rows * classes, self.dtype, first[0].device) as scratch:

                def terms(chunk: Chunk) -> tuple[Tensor, ...]:
                    shape = beside, len(chunk[1]), classes
                    return log_loss_terms(chunk, binary, derivatives, scratch[: math.prod(shape)].view(shape))

                return log_loss_sums(*zip(*map(terms, itertools.chain([first], chunks)), strict=True))

        return self.total(sums, beside)

    def held(self, weights: Tensor) -> Tensor:
        """The weights next to these that enter `log_loss` without being rounded."""
        return (weights / LOG_2).to(self.dtype).double() * LOG_2

    def statistics(self, loss: Loss, weights: Tensor) -> Tensor:
        """The sums over all rows that the loss is a function of."""
        return self.total(lambda chunks: sum_over(loss.statistics(*combined(chunk, weights)) for chunk in chunks))

    @torch.inference_mode(False)
    @torch.enable_grad()
    def pull_back(self, loss: Loss, weights: Tensor, derivative: Tensor) -> tuple[Tensor, Tensor]:
        """Those sums once more, and the gradient [members] in the weights of derivative·sums."""

        def sums_and_gradient(chunk: Chunk) -> Tensor:
            logits = combined(chunk, weights)[0].requires_grad_()
            sums = loss.statistics(logits, chunk[1].clone())  # autograd keeps no label recorded under inference mode
            (of_logits,) = torch.autograd.grad(sums, logits, derivative.to(sums.device))
            return torch.cat([sums.detach(), chunk[0].flatten(1) @ of_logits.flatten()])

        packed = self.total(lambda chunks: sum_over(map(sums_and_gradient, chunks)))
        return packed[: len(derivative)], packed[len(derivative) :]

    def margins_moved(self, directions: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each step of the weights raises, and whether it lowers, a margin (label over class) of any row.

        Directions [steps, members] -> truth values [steps], [steps]; moves up to the step's threshold do not count. A
        step that has done both is known, as is one of length 0, so that as a rule the first rows are all that is read.
        """
        moving = directions.any(dim=1)

        def look(chunks: Iterator[Chunk]) -> Tensor:
            done = torch.zeros(2, len(directions), dtype=torch.bool)
            for excess, _ in chunks:
                unknown = (moving & ~done.all(dim=0)).nonzero()[:, 0]
                if not len(unknown) or not excess.numel():
                    break
                falls = directions[unknown].to(excess.device) @ excess.flatten(1)
                lowest, highest = falls.amin(dim=1).cpu(), falls.amax(dim=1).cpu()
                done[:, unknown] |= torch.stack([lowest < -thresholds[unknown], highest > thresholds[unknown]])
            return done

        (done,) = in_threads(look, [self.chunks(beside=LOOKS * len(directions))])
        raised, lowered = self.reduce(done.double()) > 0
        return raised, lowered


def _chunk_device(members: Members) -> torch.device:
    device = members[-1].device
    return device if device.type in WORKING_BYTES else torch.device("cpu")
