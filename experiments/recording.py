"""One forward pass for all methods: the network's blocks pooled as they run, then every method's logits."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from experiments.data import ImageSet
from experiments.material import PAPER, Batches, Material
from experiments.methods import HEAD, LOGITS, Fitted, Recorded


class Recorder:
    """inputs [n, 3, h, w] -> features pooled in the library's grid, and, if some method wants it, flat as in the paper.

    A block's output is reduced at once, before an activation that works in place can change it.
    """

    def __init__(self, network: nn.Module, material: Material) -> None:
        self.network = network.eval()
        self.poolings = {"grid": material.holdout.poolings}
        if PAPER in material.holdouts:
            self.poolings["flat"] = material.holdouts[PAPER].poolings
        self.modules = dict(network.named_modules())

    def __call__(self, inputs: Tensor) -> dict[str, Recorded]:
        recorded: dict[str, dict[str, Tensor]] = {kind: {} for kind in self.poolings}

        def keeping(kind: str, name: str) -> Callable[[nn.Module, Any, Any], None]:
            def keep(module: nn.Module, given: Any, output: Any) -> None:
                recorded[kind][name] = self.poolings[kind][name](output, None)

            return keep

        hooks = [
            self.modules[name].register_forward_hook(keeping(kind, name))
            for kind, poolings in self.poolings.items()
            for name in poolings
        ]
        try:
            with torch.no_grad():
                logits = self.network(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return {kind: {**features, LOGITS: logits} for kind, features in recorded.items()}


def predict_methods(fitted: Mapping[str, Fitted], recorded: Mapping[str, Recorded]) -> dict[str, Tensor]:
    """method -> logits [n, classes]"""
    with torch.no_grad():
        return {name: method.predict(recorded[method.pooling]) for name, method in fitted.items()}


def measure_probes(recorder: Recorder, material: Material, test: ImageSet) -> dict[str, dict[str, float]]:
    """The accuracy of every block's own probe and of the head, in depth order: of "grid" features, uncut and trained
    without views, and of the paper's "flat" ones."""
    trained = {kind: material.probes["none" if kind == "grid" else PAPER] for kind in recorder.poolings}
    right = {kind: dict.fromkeys((*material.blocks, HEAD), 0) for kind in trained}
    for inputs, labels in Batches(test):
        for kind, features in recorder(inputs).items():
            members = {name: trained[kind][name].probe.logits(features[name]) for name in material.blocks}
            for name, logits in {**members, HEAD: features[LOGITS]}.items():
                right[kind][name] += int((logits.argmax(1) == labels).sum())
    return {kind: {name: count / len(test) for name, count in counts.items()} for kind, counts in right.items()}
