"""`lates evaluate --risk`: the confidence from which predictions are accepted, and what that does on each test set."""

import textwrap
from collections.abc import Mapping
from functools import partial
from typing import Any

from lates.cli.outputs import COLUMNS
from lates.cli.table import TITLES, short
from lates.metrics import Selection, Selector, fit_selector
from lates.report import Predictions

Selected = dict[str, tuple[Selector, dict[str, Selection]]]
"""method -> its selector, and test set -> what the selector does there"""


def select_all(tests: Mapping[str, Predictions], risk: float, seed: int) -> Selected:
    """Selectors fitted on the first test set, which fitted nothing else, and applied to all others."""
    (first, fitting), *others = tests.items()
    selected: Selected = {}
    for method, selector in fitting.by_method(partial(fit_selector, risk=risk, seed=seed)).items():
        elsewhere = {name: selector.measure(one.logits[method], one.labels) for name, one in others}
        selected[method] = selector, {first: selector.fitted, **elsewhere}
    return selected


def selective_lines(selected: Selected) -> str:
    """In 80 columns: one line for each method and test set."""
    selector, sets = next(iter(selected.values()))
    first = next(iter(sets))
    lines = [f"  {'':<18}{'confidence':>12}{'accepted':>12}{'wrong':>12}"]
    for name, one in sets.items():
        lines.append(f"\n{name}, {one.rows:,} rows{' that tested them' if name == first else ', the same thresholds'}")
        for method, (of_method, selections) in selected.items():
            selection = selections[name]
            threshold = "none" if of_method.threshold > 1 else short(of_method.threshold)
            wrong = short(selection.risk) if selection.accepted else ""
            title = TITLES.get(method, method)[:17]
            lines.append(f"  {title:<18}{threshold:>12}{short(selection.coverage):>12}{wrong:>12}".rstrip())
    text = (
        f"Predictions of at least this confidence are accepted. On new inputs like those of {first} at most "
        f"{100 * selector.risk:.3g} % of the accepted ones are wrong, guaranteed but for a chance of "
        f"{100 * selector.delta:.3g} %. Under shift there is no guarantee."
    )
    return "\n".join([*lines, "", textwrap.fill(text, COLUMNS)])


def selective_contents(selected: Selected) -> dict[str, Any]:
    """The same, ready for JSON."""
    return {
        method: {
            **{name: getattr(selector, name) for name in ("threshold", "risk", "delta")},
            "sets": {
                name: {**vars(selection), "coverage": selection.coverage, "risk": selection.risk}
                for name, selection in selections.items()
            },
        }
        for method, (selector, selections) in selected.items()
    }
