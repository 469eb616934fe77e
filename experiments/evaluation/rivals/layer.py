"""One layer alone: the best of some linear probes, with a temperature. With one candidate it is the last layer refitted."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import nll_loss

import lates
from experiments.evaluation.rivals import temperature
from experiments.evaluation.rivals.temperature import Temperature


@dataclass(frozen=True, eq=False)
class Layer:
    block: str
    probe: lates.Probe
    start: Temperature

    @property
    def parameters(self) -> int:
        return self.probe.parameters + 1

    def log_probabilities(self, features: lates.Features) -> Tensor:
        return self.start.log_probabilities(self.probe.logits(features.blocks[self.block]))


def fit(probes: Mapping[str, lates.Probe], holdout: lates.Features) -> Layer:
    """The probe whose log-loss on the hold-out is least, each at its best temperature."""

    def scaled(block: str) -> Layer:
        logits = probes[block].logits(holdout.blocks[block])
        return Layer(block, probes[block], temperature.fit(logits, holdout.labels, passes=holdout.passes))

    layers = map(scaled, probes)
    return min(layers, key=lambda layer: float(nll_loss(layer.log_probabilities(holdout), holdout.labels)))
