"""What a report would find, made up: small enough to know every sentence and every cell of the page."""

import math

from lates.metrics import Interval
from lates.report.numbers import Bin, ClassNumbers, Findings, Member, SetNumbers, Subject
from lates.report.predictions import LATES, NETWORK, TEMPERATURE
from lates.report.resampling import Intervals

METHODS = (NETWORK, TEMPERATURE, LATES)
NEVER = (math.nan, math.nan)


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
PLAIN = SetNumbers("plain", 2000, 1000, MEASURED, DIFFERENCES, FLOOR)
FOGGED = {**MEASURED, LATES: intervals(0.512, 1.65, 0.475, 0.2315, 0.25, 0.011)}
FOG = SetNumbers("fog", 1500, 900, FOGGED, DIFFERENCES, FLOOR)

SUBJECT = Subject(
    network="Net",
    networks=1,
    samples=1,
    parameters=20_000,
    added_parameters=1_500,
    classes=3,
    members=4,
    voting=3,
    loss="nll",
    holdout_rows=5_000,
    nll_network=0.9001,
    nll_temperature=0.7002,
    nll=0.6503,
    certified=True,
    temperatures=(1.23456,),
    changed_tensors=0,
)
MEMBERS = (
    Member(0, "early", 0.05, 0.04, interval(0.4, 0.38, 0.42), 0.41),
    Member(0, "silent", 0.0, 0.0, None, 0.55),
    Member(0, "late", 0.5, 0.36, interval(0.7, 0.68, 0.72), 0.71),
    Member(0, "head", 0.8, 0.6, interval(0.8, 0.78, 0.82), 0.79),
)


def bins(count: int, right: int, confidence: float) -> tuple[Bin, ...]:
    """Nothing below a half, and `count` above."""
    empty = Bin(0.0, 0.5, 0, 0, math.nan, math.nan, NEVER)
    return empty, Bin(0.5, 1.0, count, right, confidence, right / count, (0.7, 0.9))


CLASSES = (
    ClassNumbers(
        "cat",
        700,
        error={NETWORK: 0.2, TEMPERATURE: 0.15, LATES: 0.125},
        predicted={NETWORK: 1100, TEMPERATURE: 1100, LATES: 1300},
        confidence={NETWORK: 0.91, TEMPERATURE: 0.81, LATES: 0.71},
        precision={NETWORK: 0.52, TEMPERATURE: 0.52, LATES: 0.53},
    ),
    ClassNumbers(
        "dog",
        1300,
        error={NETWORK: 0.1, TEMPERATURE: 0.05, LATES: 0.025},
        predicted={NETWORK: 900, TEMPERATURE: 900, LATES: 0},
        confidence={NETWORK: 0.92, TEMPERATURE: 0.82, LATES: math.nan},
        precision={NETWORK: 0.95, TEMPERATURE: 0.95, LATES: math.nan},
    ),
)
KNOWN = Findings(
    SUBJECT,
    METHODS,
    sets=(PLAIN, FOG),
    points={
        "classwise_ece": {NETWORK: 0.15, TEMPERATURE: 0.1, LATES: 0.075},
        "auc": {NETWORK: 0.9111, TEMPERATURE: 0.9222, LATES: 0.9333},
    },
    bins={NETWORK: bins(2000, 1600, 0.92), TEMPERATURE: bins(2000, 1600, 0.79), LATES: bins(2000, 1624, 0.8)},
    coverage={
        method: tuple((tenth / 10, tenth * slope) for tenth in range(1, 11))
        for method, slope in zip(METHODS, (0.02, 0.02, 0.0188), strict=True)
    },
    members=MEMBERS,
    classes=CLASSES,
)
