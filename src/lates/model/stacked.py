"""One network with its probes, as it is deployed: recorders and probes only where a weight is above 0."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from lates.model.storage import fingerprint, tensors_of
from lates.network import Pooling, RecordedNetwork, choose_blocks, device_of, switch_to_evaluation
from lates.probes import Probe, affine, leave_to_head


class LinearProbe(nn.Module):
    """A deployed probe: features [n, width] and the head's logits -> logits [n, classes]."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.down = _frozen(probe.down)
        self.up = None if probe.up is None else _frozen(probe.up)
        self.bias = _frozen(probe.bias)
        self.unseen: Tensor | None
        self.register_buffer("unseen", probe.unseen)
        self.cap: Tensor | None
        self.register_buffer("cap", probe.cap)

    def forward(self, features: Tensor, head: Tensor) -> Tensor:
        logits = affine(features, self.down, self.up, self.bias, self.cap)
        return leave_to_head(self.unseen, logits, head)


def _frozen(values: Tensor) -> nn.Parameter:
    """Contiguous, so that a probe computes the same to the last bit before saving and after loading."""
    return nn.Parameter(values.clone(memory_format=torch.contiguous_format), requires_grad=False)


@dataclass(frozen=True, eq=False)
class NetworkCalibration:
    """What belongs to one network.

    names        of all members considered, the head last; weights [members]
    poolings     block -> how its output becomes features, and its probe, for all that vote at least
    accuracies   of each member alone on the hold-out, its probe as trained, whatever its weight; empty if unknown
    fingerprint  of the network when it was calibrated, tensor -> [shape, digest], if a file says so; empty: that of now
    """

    names: tuple[str, ...]
    weights: Tensor
    poolings: Mapping[str, Pooling]
    probes: Mapping[str, Probe]
    accuracies: tuple[float, ...] = ()
    fingerprint: Mapping[str, Sequence[Any]] = field(default_factory=dict)


class StackedNetwork(nn.Module):
    """One network with the weights of its members: forward gives sum_k weight_k logits_k, [n, classes].

    A member of weight 0 has no probe and no recorder here: it costs nothing. Nor is a head of weight 0 in the sum, so that
    an exported graph ends with the last block that votes.
    """

    def __init__(self, model: nn.Module, calibration: NetworkCalibration, dropout: bool = False) -> None:
        super().__init__()
        choose_blocks(model, list(calibration.poolings))  # which refuses those that the model does not have
        device, self.names = device_of(model), calibration.names
        self.accuracies, self.dropout = calibration.accuracies, dropout
        with torch.inference_mode(False):  # tensors made under a caller's inference mode would never allow gradients
            weights = calibration.weights.to(device, torch.float32, copy=True)
            self._voting_indices = tuple((weights[:-1] > 0).nonzero()[:, 0].tolist())
            self.voting = tuple(self.names[index] for index in self._voting_indices)
            probes = [LinearProbe(calibration.probes[name]).to(device) for name in self.voting]
        self.poolings = {name: calibration.poolings[name] for name in self.voting}
        self.network = RecordedNetwork(model, self.poolings)
        self._calibrated_as = calibration.fingerprint or fingerprint(self.network.network)
        self._dtypes = self._dtypes_now()
        self.probes = nn.ModuleList(probes)
        self.weights: Tensor
        self.register_buffer("weights", weights)
        self._head_votes = bool(weights[-1] > 0) or not self.voting  # of no votes at all, 0 times the head is the sum
        self.train(False)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        logits, features = self.network(*inputs, **named_inputs)
        return self.stacked(logits, {name: recorded[0] for name, recorded in features.items()})

    def stacked(self, logits: Tensor, features: Mapping[str, Tensor]) -> Tensor:
        """The stack's logits from the network's own, [n, classes], and the features [n, width] of each block."""
        logits, probed = self._members(logits, features)
        terms = [self.weights[index] * member for index, member in zip(self._voting_indices, probed, strict=True)]
        if self._head_votes:
            terms.insert(0, self.weights[-1] * logits)
        return reduce(torch.add, terms).to(logits.dtype)

    def members(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        """The logits of the members of positive weight and of the head, [n, classes, members]."""
        logits, features = self.network(*inputs, **named_inputs)
        logits, probed = self._members(logits, {name: recorded[0] for name, recorded in features.items()})
        return torch.stack([*(member.to(logits.dtype) for member in probed), logits], dim=2)

    def _members(self, logits: Tensor, features: Mapping[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        device = logits.device.type
        # a switch of autocast where it is off would stand in an exported graph
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            return logits, [probe(features[name], logits) for name, probe in zip(self.voting, self.probes, strict=True)]

    def network_as_calibrated(self) -> tuple[dict[str, Sequence[Any]], list[str]]:
        """The fingerprint of the network as it was calibrated, and the tensors that have other values now.

        A tensor of another dtype than then was cast, which leaves nothing to compare: its present value is taken.
        """
        now, dtypes = fingerprint(self.network.network), self._dtypes_now()
        uncast = {name for name in self._calibrated_as if name in now and dtypes[name] == self._dtypes.get(name)}
        then = {name: self._calibrated_as[name] if name in uncast else value for name, value in now.items()}
        return then, [name for name in now if then[name] != now[name]]

    def _dtypes_now(self) -> dict[str, torch.dtype]:
        return {name: value.dtype for name, value in tensors_of(self.network.network).items()}

    def train(self, mode: bool = True) -> "StackedNetwork":
        """Stays in evaluation mode, in which it was calibrated; MC dropout keeps its dropout on."""
        super().train(False)
        switch_to_evaluation(self.network, self.dropout)
        return self
