"""The rule of `results/text-and-tables.md`, applied to the predictions of all seeds; and the page's tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np

import lates
from experiments.text_and_tables.measuring import HOLDOUT, LABELS, NETWORK, NO_VIEWS, TEMPERATURE, TEST
from experiments.text_and_tables.problem import CLEAN, STRENGTHS, Families

TITLES = {"nll": "NLL", "brier": "Brier", "accuracy": "accuracy", "ece": "ECE"}
METRICS = tuple(TITLES)
HELD_BACK = "held back"
Predictions = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """The predictions of each seed, and what the page reports of them."""

    seeds: Sequence[Predictions]
    families: Families

    @property
    def candidates(self) -> list[str]:
        named = dict.fromkeys(key.split("|")[1] for key in self.seeds[0])
        return [name for name in named if name not in (LABELS, NETWORK, TEMPERATURE, NO_VIEWS)]

    def losses(self, split: str, method: str, sets: Sequence[str]) -> np.ndarray:
        """NLL per row [n], averaged over the sets, which have the same rows, and over seeds."""
        return np.mean([_losses(seed, split, method, name) for seed in self.seeds for name in sets], axis=0)

    def held_back(self, method: str) -> np.ndarray:
        return self.losses(HOLDOUT, method, [f"{family} {k}" for family in self.families.held_back for k in STRENGTHS])

    def score(self, candidate: str) -> float:
        clean = self.losses(HOLDOUT, candidate, [CLEAN])
        return float(clean.mean() + self.held_back(candidate).mean()) / 2

    def differences(self, candidate: str) -> dict[str, tuple[float, float]]:
        """Against no views, on the hold-out: difference of the NLL and its standard error."""
        of: dict[str, Callable[[str], np.ndarray]] = {
            CLEAN: lambda method: self.losses(HOLDOUT, method, [CLEAN]),
            HELD_BACK: self.held_back,
        }
        return {name: _paired(losses(candidate) - losses(NO_VIEWS)) for name, losses in of.items()}

    def strengths(self) -> dict[str, str]:
        """Named view -> the candidate with the best strength."""
        named: dict[str, str] = {}
        for candidate in sorted(self.candidates, key=self.score):
            named.setdefault(candidate.split()[0], candidate)
        return named

    def choose(self) -> str | None:
        """What "auto" takes."""
        best = min(self.strengths().values(), key=self.score)
        (clean, clean_error), (shifted, shifted_error) = self.differences(best).values()
        return best if clean <= clean_error and shifted <= -2 * shifted_error else None

    def measured(self, split: str) -> dict[str, dict[str, dict[str, list[float]]]]:
        """method -> set or family -> metric -> mean over seeds, deviation over seeds."""
        sets = dict.fromkeys(key.split("|")[2] for key in self.seeds[0] if key.startswith(split))
        groups: dict[str, list[str]] = {}
        for name in sets:
            groups.setdefault(name.split()[0], []).append(name)
        groups[HELD_BACK] = [name for family in self.families.held_back for name in groups[family]]
        return {
            method: {group: self._of_group(split, method, names) for group, names in groups.items()}
            for method in (NETWORK, TEMPERATURE, NO_VIEWS, *self.candidates)
        }

    def _of_group(self, split: str, method: str, sets: Sequence[str]) -> dict[str, list[float]]:
        by_seed = [
            [lates.metrics.summary(seed[f"{split}|{method}|{name}"], seed[f"{split}|{LABELS}|{name}"]) for name in sets]
            for seed in self.seeds
        ]
        values = {metric: [mean(scores[metric] for scores in of_sets) for of_sets in by_seed] for metric in METRICS}
        return {metric: [mean(of), stdev(of) if len(of) > 1 else 0.0] for metric, of in values.items()}

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": len(self.seeds),
            "chosen": self.choose(),
            "strengths": self.strengths(),
            "scores": {candidate: self.score(candidate) for candidate in (NO_VIEWS, *self.candidates)},
            "against no views": {candidate: self.differences(candidate) for candidate in self.candidates},
            HOLDOUT: self.measured(HOLDOUT),
            TEST: self.measured(TEST),
        }


def as_tables(outcome: Mapping[str, Any]) -> str:
    """The page's tables of a JSON outcome: test rows clean, under held-back shift, and the NLL of each family."""
    measured = outcome[TEST]
    groups = [name for name in measured[NETWORK] if name not in (CLEAN, HELD_BACK)]

    def table(columns: Mapping[str, tuple[str, str]]) -> str:
        """heading -> (set, metric)"""
        lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        lines += [
            f"| {method} | {' | '.join(_cell(*of[name][metric]) for name, metric in columns.values())} |"
            for method, of in measured.items()
        ]
        return "\n".join(lines)

    by_metric = [table({TITLES[metric]: (name, metric) for metric in METRICS}) for name in (CLEAN, HELD_BACK)]
    by_family = table({f"NLL, {name}": (name, "nll") for name in groups})
    return "\n\n".join(
        f"{title}\n\n{text}"
        for title, text in zip(("Clean:", "Held-back shifts:", "Each set:"), (*by_metric, by_family), strict=True)
    )


def _cell(mean: float, deviation: float) -> str:
    return " ± ".join(f"{value:.3f}".removeprefix("0") for value in (mean, deviation))


def _losses(seed: Predictions, split: str, method: str, name: str) -> np.ndarray:
    labels = seed[f"{split}|{LABELS}|{name}"]
    return -seed[f"{split}|{method}|{name}"][np.arange(len(labels)), labels].astype(np.float64)


def _paired(differences: np.ndarray) -> tuple[float, float]:
    return float(differences.mean()), float(differences.std(ddof=1) / len(differences) ** 0.5)
