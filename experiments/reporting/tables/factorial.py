"""The paper's recipe taken apart: every combination of five choices, each with its test NLL, of `results/paper_recipe/`."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path

from experiments.data.files import parse_json
from experiments.reporting.names import in_words
from experiments.reporting.summaries import mean
from experiments.reporting.tables.markdown import Table, number

Combinations = Mapping[tuple[str, ...], float]
"""Pooling, features, probes, weights, cap -> test NLL."""
CHOICES = ("pooling", "scale", "probes", "weights", "cap")
POOLINGS = ("channels last", "channels first", "spatial average", "global average", "grid 2 x 2")
STEPS = {
    **{f"pooling: {POOLINGS[0]} → {after}": (0, POOLINGS[0], after) for after in POOLINGS[1:]},
    "features: raw → standardised": (1, "raw", "standardised"),
    "probes: SGD → optimum": (2, "SGD", "optimum"),
    "weights: SGD → optimum": (3, "SGD", "exact"),
    "1 % of the parameters → no cap": (4, "capped", "uncapped"),
}
READINGS = {
    "temperature scaling": ("temperature", "", "", "exact", ""),
    "literal: channels last, raw, SGD, SGD": ("channels last", "raw", "SGD", "SGD", "capped"),
    "most plausible: spatial average, standardised, SGD, SGD": ("spatial average", "standardised", "SGD", "SGD", "capped"),
    "the same with probes and weights at their optimum": ("spatial average", "standardised", "optimum", "exact", "capped"),
}  # fmt: skip


def factorial_tables(folder: Path) -> list[Table]:
    """What each choice is worth, two readings of the paper, all combinations within 1 % of the parameters."""
    cases: dict[str, Combinations] = {}
    for path in sorted(folder.glob("*.json")):
        file = parse_json(path.read_bytes())
        dataset, network, _ = file["case"].split("-")
        nll = {tuple(row[choice] for choice in CHOICES): row["nll"] for row in file["rows"]}
        cases[f"{in_words(network)}, {in_words(dataset)}"] = nll

    def table(name: str, title: str, rows: Mapping[str, Callable[[Combinations], str]]) -> Table:
        lines = tuple((label, *map(cell, cases.values())) for label, cell in rows.items() if cases)
        return Table(f"recipe_{name}", title, ("test NLL", *cases), lines, "One seed for each network.")

    steps = {label: partial(_effect, step=step, over=mean) for label, step in STEPS.items()}
    steps["weights: SGD → optimum, at most"] = partial(_effect, step=STEPS["weights: SGD → optimum"], over=min)
    readings = {label: partial(_nll, keys=[key]) for label, key in READINGS.items()}
    pairs = {
        ", ".join(key): partial(_nll, keys=[(*key, weights, "capped") for weights in ("SGD", "exact")])
        for key in product(POOLINGS, ("raw", "standardised"), ("SGD", "optimum"))
    }
    return [
        table("steps", "Change of the test NLL, the mean over all other choices; negative is better", steps),
        table("readings", "Within 1 % of the parameters", readings),
        table("pairs", "Within 1 % of the parameters; weights by SGD / at their optimum", pairs),
    ]


def _effect(nll: Combinations, step: tuple[int, str, str], over: Callable[[list[float]], float]) -> str:
    """Of one choice, from one level to another, over the combinations that were run with both."""
    place, before, after = step
    pairs = [(value, (*key[:place], after, *key[place + 1 :])) for key, value in nll.items() if key[place] == before]
    return number(over([nll[other] - value for value, other in pairs if other in nll]), 3)


def _nll(nll: Combinations, keys: list[tuple[str, ...]]) -> str:
    return " / ".join(number(nll[key], 3) for key in keys)
