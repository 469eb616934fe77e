"""Names and numbers as the report writes them."""

import math
from collections.abc import Sequence

from lates.metrics import LARGER_IS_BETTER, Interval
from lates.report.predictions import LATES, NETWORK, TEMPERATURE

LABELS = {NETWORK: "Network", TEMPERATURE: "Temperature scaling", LATES: "LATES"}
INSIDE = {NETWORK: "the network alone", TEMPERATURE: "temperature scaling", LATES: "LATES"}
"""The same names in the middle of a sentence"""
EXPLAINED = {
    NETWORK: "before calibration",
    TEMPERATURE: "all logits divided by one number",
    LATES: "layer-stack temperature scaling",
}

TITLES = {
    "accuracy": "Accuracy",
    "nll": "Log-loss",
    "ece": "Calibration error",
    "brier": "Brier score",
    "aurc": "Area under risk–coverage",
    "classwise_ece": "Classwise calibration error",
    "auc": "Area under ROC",
}
IN_PERCENT = ("accuracy", "ece", "classwise_ece", "aurc")


def direction(metric: str) -> str:
    return "higher is better" if metric in LARGER_IS_BETTER else "lower is better"


def number(value: float, metric: str = "nll") -> str:
    """A metric's value: shares in percent, scores with four digits."""
    if not math.isfinite(value):
        return "not finite"
    if metric in IN_PERCENT:
        return percent(value, 1 if metric == "accuracy" else 2)
    return f"{value:.4f}"


def percent(value: float, digits: int = 1) -> str:
    """With a no-break space before the sign."""
    return f"{100 * value:.{digits}f}\u00a0%"


def share(value: float) -> str:
    """In percent, with one more digit where it is small."""
    return percent(value, 0 if value >= 0.095 or not value else 1)


def points(value: float) -> str:
    """A difference of shares without its sign, in percentage points."""
    return f"{abs(100 * value):.{2 if abs(value) < 0.1 else 1}f} percentage points"


def between(interval: Interval, metric: str) -> str:
    low, high = (number(edge, metric) for edge in (interval.low, interval.high))
    return f"{low.removesuffix(chr(0xA0) + '%')} to {high}"


def signed(value: float, metric: str) -> str:
    """A difference with its sign; that of shares in percentage points, without the unit."""
    text = f"{100 * value:+.2f}" if metric in IN_PERCENT else f"{value:+.4f}"
    return text.replace("-", "−")


def inside_name(metric: str) -> str:
    """A metric's name in the middle of a sentence."""
    title = TITLES[metric]
    return title if title.startswith("Brier") else title[0].lower() + title[1:]


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
