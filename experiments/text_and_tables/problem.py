"""A network with its loaders, clean and shifted, and the candidates to compare on it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

CLEAN, STRENGTHS = "clean", (1, 2)
Loader = Iterable[Any]


@dataclass(frozen=True)
class Problem:
    """One network.

    holdout, test   name of a set of rows ("clean", "typos 1", "typos 2", …) -> its loader; the sets of the hold-out have the
                    same rows in the same order
    views           candidate -> its views
    """

    model: nn.Module
    train: Loader
    holdout: Mapping[str, Loader]
    test: Mapping[str, Loader]
    views: Mapping[str, Callable[[Any], Any]]
    budget: float


@dataclass(frozen=True)
class Families:
    """The kinds of shift, by name."""

    held_back: tuple[str, ...]
    overlapping: tuple[str, ...]

    @property
    def sets(self) -> list[str]:
        """Clean, and each family at each strength."""
        return [CLEAN, *(f"{family} {k}" for family in (*self.held_back, *self.overlapping) for k in STRENGTHS)]
