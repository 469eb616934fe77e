"""The weights that `lates fit` found on cached logits, as a small file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lates.cli.cached import Cached
from lates.stack import Stack, combine
from lates.storage import read_calibration, read_record, write_calibration

KEY = "fitted"


@dataclass(frozen=True)
class Fitted:
    """The members' names, the head last, a weight for each, and what the fit found.

    nll_before is the log-loss of the head as it is, nll that of the weighted sum, both on the rows of the fit.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    loss: str
    regularise: float
    rows: int
    classes: int
    nll_before: float
    nll: float
    certified: bool
    bounded: bool

    @classmethod
    def of(cls, stack: Stack, cached: Cached, nll_before: float) -> "Fitted":
        rows, classes = cached.shape
        return cls(
            names=stack.names,
            weights=tuple(stack.weights.tolist()),
            loss=stack.loss,
            regularise=stack.regularise,
            rows=rows,
            classes=classes,
            nll_before=nll_before,
            nll=stack.nll,
            certified=stack.certified,
            bounded=stack.bounded,
        )

    @property
    def method(self) -> str:
        return "temperature" if len(self.names) == 1 else "stack"

    @property
    def temperature(self) -> float | None:
        """1 / weight where the head was fitted alone, inf where that is 0; None where there are other members."""
        if self.method != "temperature":
            return None
        return 1 / self.weights[0] if self.weights[0] > 0 else float("inf")

    @property
    def contributions(self) -> dict[str, float]:
        """Each member's share of the weights' sum; all 0 where all weights are 0."""
        total = sum(self.weights)
        return {name: weight / total if total > 0 else 0.0 for name, weight in self.named_weights.items()}

    @property
    def named_weights(self) -> dict[str, float]:
        return dict(zip(self.names, self.weights, strict=True))

    def apply(self, cached: Cached) -> Tensor:
        """The calibrated logits [n, classes] of the same members, on any rows."""
        missing = [name for name in self.names if name not in cached.members]
        if missing:
            raise ValueError(
                f"The weights are for the members {', '.join(self.names)}; the logits have {', '.join(cached.members)}."
            )
        if cached.shape[1] != self.classes:
            raise ValueError(f"The weights are for {self.classes} classes; the logits have {cached.shape[1]}.")
        members = tuple(cached.members[name].double() for name in self.names)
        return combine(members, self._weights)

    def save(self, path: Path) -> None:
        """Whole or not at all; the weights also as a tensor, for readers that know only safetensors."""
        write_calibration(path, {"weights": self._weights}, {KEY: asdict(self)})

    @property
    def _weights(self) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64)


def is_fitted(metadata: dict[str, Any]) -> bool:
    """Whether a file's metadata are those of cached logits and not of a network."""
    return KEY in metadata


def parse_fitted(metadata: dict[str, Any], path: Path) -> Fitted:
    try:
        return read_record(Fitted, metadata[KEY])
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"The metadata of {path} are damaged ({fault!r}). Fit again.") from fault


def read_fitted(path: Path) -> Fitted:
    _, metadata = read_calibration(path)
    if not is_fitted(metadata):
        raise ValueError(f"{path} calibrates a network; expected what `lates fit` wrote.")
    return parse_fitted(metadata, path)
