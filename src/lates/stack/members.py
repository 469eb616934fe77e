"""Labelled rows of member logits, and sums over them, one chunk of rows at a time.

A row enters only through its *logit differences*, those of every class to the label in every member,

    e_ick = m_ick - m_i,y_i,k          (0 for the label; the others, negated, are margins),

in which a constant added to all classes of a row cancels.

Members are [n, classes] tensors of any floating dtype on any device, memory-mapped or not; only one chunk at a time is
copied, to float64. The solvers see sums over rows alone, through `reduce`: for rows that are sharded over processes, an
all-reduce of those sums is all there is to add.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from lates.runtime import ALONE, Array, as_tensor, check_members, map_threads, on_one_core, split_rows, thread_count

CHUNK_BYTES = {"cpu": 6 * 2**20, "cuda": 384 * 2**20}
"""About the cache of a CPU's core, or enough to keep a GPU busy. Smaller chunks would fit it better, but the threads' short
operations would wait for Python's lock. Rows of other devices, which may lack float64, go to the CPU."""

Reduce = Callable[[Tensor], Tensor]
Members = Sequence[Tensor]


class Chunk(NamedTuple):
    """Logit differences [members, rows, classes], labels [rows] and how much each row counts [rows]; None: all alike."""

    differences: Tensor
    labels: Tensor
    row_weights: Tensor | None

    def logits(self, weights: Tensor) -> Tensor:
        """The stack's logits [rows, classes], up to a constant in each row."""
        return torch.mv(self.differences.flatten(1).T, weights.to(self.differences)).view(self.differences.shape[1:])

    def sum(self, values: Tensor) -> Tensor:
        """The sum over rows of values [rows, …], each times what its row counts."""
        return values.sum(dim=0) if self.row_weights is None else self.row_weights @ values


@dataclass(frozen=True)
class MemberRows:
    """Labelled rows of the member logits of one sample or several: of an ensemble's networks, or of MC dropout.

    names    of each network's members, the head last
    samples  the members' logits of each sample; every network has as many samples, one after the other
    labels   [n], the same for all samples
    passes   how many rows each input has, such as views of it
    row_weights  how much each row counts in the loss [n], 1 on average; None: all alike
    reduce   sums a tensor over all processes
    rows     of one sample, in all processes
    """

    names: tuple[tuple[str, ...], ...]
    samples: tuple[Members, ...]
    labels: Tensor
    passes: int = 1
    row_weights: Tensor | None = None
    reduce: Reduce = ALONE.all_reduce
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        rows = self.reduce(torch.tensor([len(self.labels)], dtype=torch.float64))
        object.__setattr__(self, "rows", int(rows))

    @classmethod
    def of(
        cls,
        samples: Sequence[Array | Sequence[Array] | Mapping[str, Array]],
        labels: Array,
        *,
        samples_per_network: int = 1,
        passes: int = 1,
        reduce: Reduce | None = None,
        row_weights: Array | None = None,
    ) -> "MemberRows":
        """Check the members of each sample; the samples of one network follow one another."""
        classes = [list(sample.values())[-1].shape[-1] for sample in samples if isinstance(sample, Mapping) and sample]
        if len(set(classes)) > 1:
            raise ValueError(f"The networks have {', '.join(map(str, classes))} classes; they need the same.")
        checked = [check_members(sample, labels, least_rows=0 if reduce else 1) for sample in samples]
        names, logits, (checked_labels, *_) = zip(*checked, strict=True)
        rows = cls(names[::samples_per_network], logits, checked_labels, passes, reduce=reduce or ALONE.all_reduce)
        return rows if row_weights is None else rows._weighted(row_weights)

    def _weighted(self, given: Array) -> "MemberRows":
        """The rows that count, and how much."""
        weights, shape = as_tensor(given, "row weights").detach().to("cpu", torch.float64), list(self.labels.shape)
        if list(weights.shape) != shape:
            raise ValueError(f"row weights have shape {list(weights.shape)}; expected {shape}: one for each row.")
        if not bool((weights.isfinite() & (weights >= 0)).all()) or not bool(weights.any()):
            raise ValueError("row weights must be finite and at least 0, and some above 0; look for NaN and negative ones.")
        return replace(self, row_weights=weights).select(weights > 0)

    @property
    def classes(self) -> int:
        return self.samples[0][-1].shape[1]

    @property
    def samples_per_network(self) -> int:
        """How many samples of each network."""
        return len(self.samples) // len(self.names)

    @property
    def head_places(self) -> Tensor:
        """Where each network's head is among all members."""
        return torch.tensor([len(names) for names in self.names]).cumsum(0) - 1

    def heads_alone(self, weights: Tensor) -> Tensor:
        """Weights of all members: these for the heads, 0 for the probes."""
        places = self.head_places
        return torch.zeros(int(places[-1]) + 1, dtype=torch.float64).index_copy(0, places, weights)

    @property
    def initial_weights(self) -> Tensor:
        """The networks as they are, (0, …, 0, 1) each: step 3 of Algorithm 1."""
        return self.heads_alone(torch.ones(len(self.names), dtype=torch.float64))

    def heads(self) -> "MemberRows":
        """The same rows with the heads as the only members."""
        names, samples = (tuple(each[-1:] for each in several) for several in (self.names, self.samples))
        return replace(self, names=names, samples=samples)

    def networks(self) -> "list[MemberRows]":
        """The same rows of each network alone."""
        each = self.samples_per_network
        samples = [self.samples[first : first + each] for first in range(0, len(self.samples), each)]
        return [replace(self, names=(names,), samples=part) for names, part in zip(self.names, samples, strict=True)]

    def select(self, rows: Tensor | slice) -> "MemberRows":
        """These rows alone, by a mask [n], their places, or a slice, which copies nothing. They count 1 on average again."""
        samples = tuple(tuple(member[rows] for member in sample) for sample in self.samples)
        weights = None if self.row_weights is None else self.row_weights[rows] / self.row_weights[rows].mean()
        return replace(self, samples=samples, labels=self.labels[rows], row_weights=weights)

    def first_pass(self) -> "MemberRows":
        """The first row of each input."""
        return replace(self.select(slice(len(self.labels) // self.passes)), passes=1)

    def of_networks(self, weights: Tensor) -> Sequence[Tensor]:
        """The weights of each network's members, from those of all networks' members."""
        return weights.split([len(names) for names in self.names])

    def per_sample(self, weights: Tensor) -> list[Tensor]:
        """The weights of each sample's members, from those of all networks' members."""
        return [vector for vector in self.of_networks(weights) for _ in range(self.samples_per_network)]

    def mean_logits(self, chunks: Sequence[Chunk], weights: Tensor) -> Tensor:
        """Logits [rows, classes] of the prediction, up to a constant in each row, from the same rows of all samples. Of several
        samples the prediction is the mean of their probabilities."""
        samples = zip(chunks, self.per_sample(weights), strict=True)
        per_sample = [chunk.logits(of_sample) for chunk, of_sample in samples]
        if len(per_sample) == 1:
            return per_sample[0]
        return torch.stack([logits.log_softmax(dim=1) for logits in per_sample]).logsumexp(dim=0)

    def sum(self, term: Callable[[Chunk], Tensor]) -> Tensor:
        """The sum of a term over the chunks of every sample, in all processes. The term may overwrite its chunk."""
        return self.sum_jointly(lambda chunks: functools.reduce(torch.add, map(term, chunks)))

    def sum_jointly(self, term: Callable[[list[Chunk]], Tensor]) -> Tensor:
        """The sum of a term that sees the same rows of all samples at once, in all processes."""
        return self.reduce(self._join(lambda terms: functools.reduce(torch.add, terms), term))

    def of_rows(self, term: Callable[[list[Chunk]], Tensor]) -> Tensor:
        """A term of each row, joined along the last dimension: [..., rows of this process]."""
        return self._join(lambda terms: torch.cat([*terms], dim=-1), term)

    def any(self, condition: Callable[[list[Chunk]], Tensor]) -> bool:
        """Whether a condition [rows] holds in any row of any process. No chunk is read after the first one where it does."""

        def in_any_row(rows: slice) -> bool:
            return any(bool(condition(chunks).any()) for chunks in self._chunks(rows))

        here = on_one_core(in_any_row, slice(0, len(self.labels)), device=self.device)
        return bool(self.reduce(torch.tensor([here], dtype=torch.float64)))

    @functools.cached_property
    def sizes(self) -> Tensor:
        """The rms of each row's logits, centred by their mean over classes, in each member of each sample: [members of all
        samples, rows of this process]; inf where float64 overflows."""

        def norms(chunks: list[Chunk]) -> Tensor:
            values = torch.cat([torch.linalg.vector_norm(_centred(chunk.differences), dim=2) for chunk in chunks])
            return values.div_(math.sqrt(self.classes)).nan_to_num_(nan=torch.inf, posinf=torch.inf)

        return self.of_rows(norms)

    def _join(self, join: Callable[[Iterable[Tensor]], Tensor], term: Callable[[list[Chunk]], Tensor]) -> Tensor:
        """A term of every chunk, joined in each thread, then over threads, on the CPU."""
        numbers = sum(map(len, self.samples)) * len(self.labels) * self.classes
        shares = split_rows(len(self.labels), thread_count(numbers, self.device))
        return join(map_threads(lambda share: join(map(term, self._chunks(share))), shares, self.device)).cpu()

    def _chunks(self, share: slice) -> Iterator[list[Chunk]]:
        """Of a share of the rows, chunk by chunk, one chunk for each sample; an empty share has one empty chunk."""
        device, members = self.device, [len(sample) for sample in self.samples]
        arrays = sum(members) + 2 * len(members)  # beside the differences of each sample its logits and one more of their size
        step = max(1, CHUNK_BYTES[device.type] // (torch.float64.itemsize * arrays * self.classes))
        # One buffer for all chunks, for new memory comes page by page. On a CPU it is as large as all arrays of a chunk
        # together: the allocator then keeps what the others give back, and pages that are not touched take no memory.
        length = arrays if device.type == "cpu" else sum(members)
        shape = length, min(step, max(1, share.stop - share.start)), self.classes
        buffer = torch.empty(shape, dtype=torch.float64, device=device)
        for start in range(share.start, max(share.stop, share.start + 1), step):
            rows = slice(start, min(start + step, share.stop))
            labels = self.labels[rows].to(device, copy=True)  # autograd refuses tensors of inference mode
            weights = None if self.row_weights is None else self.row_weights[rows].to(device, copy=True)
            targets = zip(buffer[: sum(members), : len(labels)].split(members), self.samples, strict=True)
            yield [Chunk(_differences([m[rows] for m in sample], labels, out), labels, weights) for out, sample in targets]

    @property
    def device(self) -> torch.device:
        """Where chunks are computed."""
        device = self.samples[-1][-1].device
        return device if device.type in CHUNK_BYTES else torch.device("cpu")


def _centred(logits: Tensor) -> Tensor:
    """Logits [members, rows, classes] less their mean over classes, in place."""
    return logits.sub_(logits.mean(dim=2, keepdim=True))


def _differences(members: Members, labels: Tensor, out: Tensor) -> Tensor:
    for target, member in zip(out, members, strict=True):
        target.copy_(member)
    return out.sub_(out.gather(2, labels[None, :, None].expand(len(members), -1, 1)))
