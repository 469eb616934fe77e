"""`lates evaluate --risk`: the confidence from which predictions are accepted, and what that does on each test set."""

import textwrap
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lates.cli.outputs import COLUMNS
from lates.cli.table import TITLES, short
from lates.metrics import Selection, Selector, fit_selector

Tests = Mapping[str, tuple[Mapping[str, Tensor], Tensor]]
Selected = dict[str, tuple[Selector, dict[str, Selection]]]
"""method -> its selector, and test set -> what the selector does there"""


def select_all(tests: Tests, risk: float, seed: int) -> Selected:
    """Selectors fitted on the first test set, which fitted nothing else, and applied to all others."""
    (first, (methods, labels)), *others = tests.items()
    found: Selected = {}
    for method, logits in methods.items():
        selector = fit_selector(logits, labels, risk=risk, seed=seed)
        measured = {name: selector.measure(of_set[method], truth) for name, (of_set, truth) in others}
        found[method] = selector, {first: selector.fitted, **measured}
    return found


def selective_lines(selected: Selected) -> str:
    """In 80 columns: one line for each method and test set."""
    any_selector, sets = next(iter(selected.values()))
    first = next(iter(sets))
    lines = [f"  {'':<18}{'confidence':>12}{'accepted':>12}{'wrong':>12}"]
    for name in sets:
        lines.append(
            f"\n{name}, {sets[name].rows:,} rows{' that tested them' if name == first else ', the same thresholds'}"
        )
        for method, (selector, found) in selected.items():
            title = TITLES.get(method, method)
            if found[name].accepted:
                numbers = (
                    f"{short(selector.threshold):>12}{short(found[name].coverage):>12}{short(found[name].risk):>12}"
                )
            else:
                numbers = (
                    f"{'none' if selector.threshold > 1 else short(selector.threshold):>12}{short(0.0):>12}{'':>12}"
                )
            lines.append(f"  {title[:17]:<18}{numbers}".rstrip())
    text = (
        f"Predictions of at least this confidence are accepted. On new inputs like those of {first} at most "
        f"{100 * any_selector.risk:.3g} % of the accepted ones are wrong, guaranteed but for a chance of "
        f"{100 * any_selector.delta:.3g} %. Under shift there is no guarantee."
    )
    return "\n".join([*lines, "", textwrap.fill(text, COLUMNS)])


def selective_contents(selected: Selected) -> dict[str, Any]:
    """The same, ready for JSON."""
    return {
        method: {
            **{name: getattr(selector, name) for name in ("threshold", "risk", "delta")},
            "sets": {
                name: {**vars(of_set), "coverage": of_set.coverage, "risk": of_set.risk}
                for name, of_set in found.items()
            },
        }
        for method, (selector, found) in selected.items()
    }
