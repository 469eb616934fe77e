"""What a report would find, made up: small enough to know every sentence and every cell of the page."""

import math
from types import SimpleNamespace
from typing import Any

import torch

from lates.metrics import Comparison, Interval, Intervals, Reliability, Selection, Selector
from lates.report import LATES, NETWORK, TEMPERATURE
from lates.report.findings import ClassScore, Findings, Member
from lates.stack import Stack

METHODS = (NETWORK, TEMPERATURE, LATES)


def interval(value: float, low: float, high: float) -> Interval:
    return Interval(value, low, high, 0.95, 1000)


def intervals(accuracy: float, nll: float, brier: float, ece: float, aurc: float, reach: float) -> Intervals:
    """Each `reach` wide to either side."""
    values = {"accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece, "aurc": aurc}
    return {metric: interval(value, value - reach, value + reach) for metric, value in values.items()}


MEASURED = {
    NETWORK: intervals(0.8, 0.9, 0.31, 0.12, 0.07, 0.011),
    TEMPERATURE: intervals(0.8, 0.7, 0.29, 0.04, 0.06, 0.011),
    LATES: intervals(0.812, 0.65, 0.275, 0.0315, 0.05, 0.011),
}
DIFFERENCES = {
    NETWORK: intervals(0.012, -0.25, -0.035, -0.0885, -0.02, 0.001),
    TEMPERATURE: intervals(0.012, -0.05, 0.015, -0.0085, -0.01, 0.01),
}
FLOOR = {NETWORK: 0.0101, TEMPERATURE: 0.0202, LATES: 0.0303}
PLAIN = Comparison(2000, 3, 1000, MEASURED, {LATES: DIFFERENCES}, FLOOR)
FOGGED = {**MEASURED, LATES: intervals(0.512, 1.65, 0.475, 0.2315, 0.25, 0.011)}
FOG = Comparison(1500, 3, 900, FOGGED, {LATES: DIFFERENCES}, FLOOR)

FIT = Stack(
    weights=torch.tensor([0.05, 0.0, 0.5, 0.8]),
    names=("early", "silent", "late", "head"),
    deviations=torch.ones(4),
    loss="nll",
    rows=5_000,
    classes=3,
    nll_network=0.9001,
    nll_temperature=0.7002,
    nll=0.6503,
    certified=True,
    unbounded=False,
    temperature_weights=(1 / 1.23456,),
)


def stand_in(name: str = "Net", networks: int = 1, samples: int = 1, changed: int = 0, fit: Stack = FIT) -> Any:
    """What a page says of a calibrated model: of its networks, each with 20,000 parameters, and of its fit."""
    network = SimpleNamespace(network=type(name, (), {})(), parameters=lambda: [torch.empty(20_000)])
    one = SimpleNamespace(network=network, network_as_calibrated=lambda: ({}, ["weight"] * changed))
    return SimpleNamespace(networks=[one] * networks, samples=samples, added_parameters=1_500, fit=fit)


MEMBERS = (
    Member(0, "early", 0.05, 0.04, 0.41),
    Member(0, "silent", 0.0, 0.0, 0.55),
    Member(0, "late", 0.5, 0.36, 0.71),
    Member(0, "head", 0.8, 0.6, 0.79),
)


def diagram(count: int, correct: int, confidence: float) -> Reliability:
    """Nothing below a half, and `count` above."""
    edges, means = torch.tensor([0.0, 0.5, 1.0]), [[math.nan, mean] for mean in (confidence, correct / count)]
    return Reliability(edges.double(), torch.tensor([0, count]), *torch.tensor(means, dtype=torch.float64))


CAT = (0.2, 1100, 0.91, 0.52), (0.15, 1100, 0.81, 0.52), (0.125, 1300, 0.71, 0.53)
DOG = (0.1, 900, 0.92, 0.95), (0.05, 900, 0.82, 0.95), (0.025, 0, math.nan, math.nan)
CLASSES = {
    method: (ClassScore("cat", 700, *cat), ClassScore("dog", 1300, *dog))
    for method, cat, dog in zip(METHODS, CAT, DOG, strict=True)
}
KNOWN = Findings(
    stand_in(),
    sets={"plain": PLAIN, "fog": FOG},
    points={
        "classwise_ece": {NETWORK: 0.15, TEMPERATURE: 0.1, LATES: 0.075},
        "auc": {NETWORK: 0.9111, TEMPERATURE: 0.9222, LATES: 0.9333},
    },
    diagrams={
        method: diagram(2000, correct, confidence)
        for method, correct, confidence in zip(METHODS, (1600, 1600, 1624), (0.92, 0.79, 0.8), strict=True)
    },
    coverage={
        method: tuple((tenth / 10, tenth * slope) for tenth in range(1, 11))
        for method, slope in zip(METHODS, (0.02, 0.02, 0.0188), strict=True)
    },
    members=MEMBERS,
    classes=CLASSES,
    selectors={
        0.01: dict.fromkeys(METHODS, Selector(math.inf, 0.01, 0.05, Selection(1800, 0, 0))),
        0.05: {
            method: Selector(threshold, 0.05, 0.05, Selection(1800, accepted, 30))
            for method, threshold, accepted in zip(METHODS, (0.95, 0.75, 0.7), (900, 900, 1080), strict=True)
        },
    },
)
