"""Selective prediction on the page: from which confidence on errors stay below a wanted share, and how many inputs remain."""

from lates.metrics import Selector
from lates.report.formats import INSIDE, LABELS, listed, percent
from lates.report.numbers import Findings

MAIN_RISK = 0.05


def words_of_selectors(findings: Findings) -> str:
    """The promise, what it costs at 5 %, and what it assumes."""
    parts = [
        f"{percent(selector.fitted.coverage)} ({INSIDE[method]})"
        for method, selectors in findings.selectors.items()
        for selector in selectors
        if selector.risk == MAIN_RISK
    ]
    delta = next(iter(findings.selectors.values()))[0].delta
    return (
        "Thresholds with a guarantee: if only inputs of at least this confidence are answered, the error rate of the answers "
        f"stays at or below the one allowed, but for a chance of {percent(delta, 0)} that these test inputs mislead. For an "
        f"error rate of {percent(MAIN_RISK, 0)} the share answered is {listed(parts)}. This assumes that new inputs come "
        "from the same source as the test inputs; under distribution shift there is no guarantee."
    )


def selector_table(findings: Findings) -> tuple[list[tuple[str, str]], list[list[str]], str]:
    """Head, rows and caption: the confidence needed and the share answered, by the error rate allowed."""
    head = [("Error rate allowed", "")]
    for method in findings.selectors:
        head += [(f"{LABELS[method]}: confidence", method), ("answered", method)]
    rows = [
        [percent(row[0].risk, 0), *(cell for selector in row for cell in _cells(selector))]
        for row in zip(*findings.selectors.values(), strict=True)
    ]
    return head, rows, "Confidence from which the error rate is guaranteed, and the share of inputs answered"


def _cells(selector: Selector) -> tuple[str, str]:
    if not selector.fitted.accepted:
        return "none", percent(0, 0)
    return f"{selector.threshold:.4f}", percent(selector.fitted.coverage)
