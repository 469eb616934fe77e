"""The rule of `results/choosing-defaults.md`, applied to `results/search_shift`: which views become the default.

    python -m experiments.reporting.shift_search results/search_shift

Each file there is one network. Of each candidate it holds the metrics on hold-out images, clean and under each family of shift,
and how much worse (accuracy: lower) they are than those of other candidates, with the paired standard error.
"""

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

REFERENCE = "temperature"
FAMILIES = ("hue", "occlusion", "wave", "resampling", "lines", "vignette")
BASE = "robust, robust hold-out"
STATISTICS = ("blocks", "blocks and image", "standardised", "blocks and votes", "blocks and image and votes")
LISTED = (
    *("none", "shift", "jitter", "robust", "published", BASE, f"{BASE}, to Brier"),
    *(f"{BASE}, gated by {what}{loss}" for what in STATISTICS for loss in ("", ", to Brier")),
)
"""The candidates that the page listed before the first measurement. Temperature scaling's variants are shown, not chosen."""


@dataclass(frozen=True)
class Violation:
    network: str
    family: str
    metric: str


@dataclass(frozen=True)
class Search:
    """network -> its file"""

    networks: dict[str, dict[str, Any]]

    @property
    def metrics(self) -> Sequence[str]:
        return next(iter(self.networks.values()))["metrics"]

    def value(self, candidate: str, images: str, metric: str) -> float:
        """The mean over networks; `images` is "clean", "shifted" or a family."""
        place = self.metrics.index(metric)
        return mean(file["candidates"][candidate]["value"][images][place] for file in self.networks.values())

    def violations(self, candidate: str) -> list[Violation]:
        """Where it is worse than temperature scaling by more than one paired standard error."""
        if candidate == REFERENCE:
            return []
        return [
            Violation(network, family, metric)
            for network, file in self.networks.items()
            for family in FAMILIES
            for metric, (worse, error) in zip(
                self.metrics, file["candidates"][candidate]["worse than"][REFERENCE][family], strict=True
            )
            if worse > error
        ]

    def choose(self, candidates: Collection[str] = LISTED, without: str | None = None) -> str:
        """The lowest clean NLL among the candidates with the fewest violations, those under the family `without` aside."""

        def rank(candidate: str) -> tuple[int, float]:
            counted = sum(violation.family != without for violation in self.violations(candidate))
            return counted, self.value(candidate, "clean", "nll")

        return min(candidates, key=rank)


def read_search(folder: Path) -> Search:
    files = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return Search({file["network"]: file for file in files})


def main(folder: Path) -> None:
    search = read_search(folder)
    print(
        "| candidate | violations | clean "
        + " | shifted ".join([" / ".join(search.metrics)] * 2)
        + " |\n|---|---|---|---|"
    )
    names = next(iter(search.networks.values()))["candidates"]
    for name in sorted(names, key=lambda name: (len(search.violations(name)), search.value(name, "clean", "nll"))):
        clean, shifted = (
            " / ".join(f"{search.value(name, images, metric):.3f}" for metric in search.metrics)
            for images in ("clean", "shifted")
        )
        print(f"| {name} | {len(search.violations(name))} | {clean} | {shifted} |")
    print(f"\nThe default: {search.choose()}. Without one family:")
    for family in FAMILIES:
        print(f"- {family}: {search.choose(without=family)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
