"""A linear map from a block's features to logits: as it is learned, as it is deployed, and cut to low rank.

What is learned reads standardised features x = (f - centre) / deviation. The standardisation is folded into the weights, so
that a deployed probe reads raw features f.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lates.network import HEAD, Features
from lates.probes.rows import StandardisedRows, rows_at_once
from lates.runtime import RowStore, full_precision
from lates.stack import Loss

Variables = Tensor
"""A probe for standardised features as one vector: its weights [classes, width], class by class, then its biases."""


@dataclass(frozen=True, eq=False)
class Probe:
    """logits = up (down f) + bias for raw features f [n, width]; a dense probe has no `up`.

    down [rank, width] (dense: [classes, width]), up [classes, rank] or None, bias [classes]; unseen [classes],
    true for classes that no training row had, which are left to the head, or None where there are none; cap [], the
    largest size of a row's logits, see `limited`, or None.
    """

    down: Tensor
    up: Tensor | None
    bias: Tensor
    unseen: Tensor | None = None
    cap: Tensor | None = None

    @property
    def parameters(self) -> int:
        return self.down.numel() + self.bias.numel() + (0 if self.up is None else self.up.numel())

    def logits(self, features: Tensor) -> Tensor:
        """[n, width] -> [n, classes], where the probe is. `member_logits` also leaves unseen classes to the head."""
        with torch.inference_mode(False):
            return torch.cat([logits for _, logits in self.in_chunks(features)])

    def in_chunks(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """(rows, their logits) of one chunk after another; of no rows, one empty chunk."""
        step = rows_at_once(features.shape[1], len(self.bias), self.bias.device)
        for start in range(0, max(len(features), 1), step):
            rows = slice(start, start + step)
            with full_precision(self.bias.device):
                chunk = features[rows].to(self.bias.device)
                logits = affine(chunk, self.down, self.up, self.bias, self.cap)
            yield rows, logits


def affine(features: Tensor, down: Tensor, up: Tensor | None, bias: Tensor, cap: Tensor | None) -> Tensor:
    """What a probe of these parts makes of raw features: [n, width] -> [n, classes]."""
    inner = features.to(bias.dtype)  # not its device, which a traced graph would keep
    if up is not None:
        inner, down = F.linear(inner, down), up
    return limited(F.linear(inner, down, bias), cap)


def limited(logits: Tensor, cap: Tensor | None) -> Tensor:
    """Logits [n, classes], scaled down in rows whose size is above the cap. The size is the root mean square over classes; a
    probe's logits sum to 0. Far from all rows that it was fitted on a linear map has no limit, and would outvote the rest."""
    if cap is None:
        return logits
    sizes = logits.square().mean(1, keepdim=True).sqrt()
    return torch.where(sizes > cap, cap / sizes, 1.0) * logits


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """A dense probe and what is needed to cut it to low rank.

    probe       as trained, standardisation folded in
    mean_logits [classes] over the training features
    basis       [classes, min(classes, width)]: directions of decreasing variance of the logits over the training features
    decay       weight decay that the hold-out chose
    loss        on the hold-out (training split where there is none)
    """

    probe: Probe
    mean_logits: Tensor
    basis: Tensor
    decay: float
    loss: float

    def cut(self, rank: int) -> Probe:
        """The probe of that rank whose logits change least on the training features, in mean square; their mean stays."""
        kept = self.basis[:, :rank]
        off_mean = self.mean_logits - self.probe.bias
        return Probe(kept.T @ self.probe.down, kept, self.mean_logits - kept @ (kept.T @ off_mean), self.probe.unseen)


def member_logits(probes: Mapping[str, Probe], features: Features, *, memory: int | None = None) -> dict[str, Tensor]:
    """The logits [n, classes] of each probe on these features, and the head's.

    Above `memory` bytes (default: no limit) the probes' go to memory-mapped temporary files.
    """
    with RowStore(sys.maxsize if memory is None else memory) as store:
        for name, probe in probes.items():
            for rows, logits in probe.in_chunks(features.blocks[name]):
                store.append({name: leave_to_head(probe.unseen, logits, features.logits[rows].to(logits))})
        return {**store.collect(), HEAD: features.logits}


def leave_to_head(unseen: Tensor | None, logits: Tensor, head: Tensor) -> Tensor:
    """A probe's logits [n, classes], with those of the `unseen` classes [classes] replaced, so that their odds against all
    others are the head's. With p the probe's logits, h the head's, and sums over the seen classes s,

        p_c <- h_c + log sum_s exp p_s - log sum_s exp h_s    for every unseen class c.

    The probe has learned no more of these classes than that they never occur: it would outvote the head on them.
    """
    if unseen is None:
        return logits
    probe_total, head_total = (z.masked_fill(unseen, -torch.inf).logsumexp(1, keepdim=True) for z in (logits, head))
    return torch.where(unseen, head + (probe_total - head_total), logits)


def holdout_accuracies(trained: Mapping[str, TrainedProbe], holdout: Features) -> dict[str, float]:
    """The accuracy on the hold-out of each probe as trained, before any cut, and of the head.

    Taken during the fit, because probes of weight 0 are not kept.
    """

    def right(probe: Probe, features: Tensor) -> int:
        labels, chunks = holdout.labels.to(probe.bias.device), probe.in_chunks(features)
        return sum(int((logits.argmax(1) == labels[rows]).sum()) for rows, logits in chunks)

    correct = [right(dense.probe, holdout.blocks[name]) for name, dense in trained.items()]
    correct.append(int((holdout.logits.argmax(1) == holdout.labels).sum()))
    counts = holdout.processes.all_reduce(torch.tensor(correct, dtype=torch.float64))
    return dict(zip([*trained, HEAD], (counts / holdout.all_rows).tolist(), strict=True))


def unpack(variables: Variables, width: int) -> tuple[Tensor, Tensor]:
    """Weights [classes, width] and biases [classes]; views, not copies."""
    classes = len(variables) // (width + 1)
    return variables[:-classes].view(classes, width), variables[-classes:]


def logits_of(variables: Variables, features: Tensor) -> Tensor:
    """[n, width] -> [n, classes]"""
    weights, biases = unpack(variables, features.shape[1])
    return torch.addmm(biases, features, weights.T)


def mean_loss(rows: StandardisedRows, loss: Loss, variables: Variables) -> float:
    def total(features: Tensor, labels: Tensor) -> Tensor:
        return loss.statistics(logits_of(variables, features), labels).sum()

    return float(rows.sum(total)) / rows.total


def fold(rows: StandardisedRows, variables: Variables, decay: float, loss: float) -> TrainedProbe:
    """Weights for raw features, shifted so that logits sum to 0 over classes, with the directions in which they vary."""
    weights, biases = (part.double() - part.double().mean(0) for part in unpack(variables, rows.width))
    mean, basis = _directions(rows, weights)
    raw = weights / rows.deviation
    counts = rows.processes.all_reduce(torch.bincount(rows.labels, minlength=rows.classes))
    unseen = counts == 0 if bool((counts == 0).any()) else None
    probe = Probe(raw.float(), None, (biases - raw @ rows.mean).float(), unseen)
    return TrainedProbe(probe, (biases + mean).float(), basis.float(), decay, loss)


def _directions(rows: StandardisedRows, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [classes] of the logits W x, biases apart, and the directions in which they vary, most first.

    With C the covariance of the features that of the logits is W C Wᵀ. Of W = Q R, with orthonormal columns in Q, the
    directions are Q times the eigenvectors of R C Rᵀ, which has as many rows as there are classes or features, the fewer.
    """
    orthonormal, factor = torch.linalg.qr(weights)

    def moments(features: Tensor, labels: Tensor) -> Tensor:
        values = (features @ factor.float().T).double()
        return torch.cat([values.sum(0)[None], values.T @ values])

    sums = rows.sum(moments) / rows.total
    covariance = sums[1:] - torch.outer(sums[0], sums[0])
    basis = orthonormal @ torch.linalg.eigh(covariance).eigenvectors.flip(1)
    return orthonormal @ sums[0], rows.processes.broadcast(basis)  # signs are free, but the same for all
