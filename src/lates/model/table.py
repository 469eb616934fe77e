"""A stack as text of 80 columns: its members, and how it was fitted."""

from collections.abc import Mapping

from lates.runtime import printable
from lates.stack import Stack

NAME_COLUMNS = 31


def member_table(stack: Stack, remarks: Mapping[str, str], title: str = "") -> list[str]:
    """One line per member, ended by its remark; the spread is shown where the members' deviations are known."""
    names = [printable(name) for name in stack.names]
    labels = [name if len(name) <= NAME_COLUMNS else f"…{name[1 - NAME_COLUMNS :]}" for name in names]
    width = max(map(len, ["member", *labels]))
    columns = {"weight": stack.weights.tolist(), "contribution": list(stack.contributions.values())}
    if not bool(stack.deviations.isnan().any()):
        columns["spread"] = list(stack.spread.values())
    lines = [f"{'member':<{width}}" + "".join(f"  {name:>{max(9, len(name))}}" for name in columns) + f"  {title}"]
    for label, name, weight, share, *spread in zip(labels, stack.names, *columns.values(), strict=True):
        numbers = f"{weight:>9.4g}  {share:>12.3f}" + "".join(f"  {value:>9.4g}" for value in spread)
        lines.append(f"{label:<{width}}  {numbers}  {remarks.get(name, '')}")
    return [line.rstrip() for line in lines]


def fit_lines(stack: Stack) -> list[str]:
    """The log-loss of each method whose log-loss is known, and whether the weights are the optimum."""
    losses = {"network": stack.nll_network, "temperature": stack.nll_temperature, "stack": stack.nll}
    return [
        f"log-loss on the hold-out, {stack.rows:,} rows:",
        ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items() if loss == loss),
        *([f"cross-validated: {stack.budget_note}"] if stack.budget_note else []),
        f"fitted to {stack.loss}: {stack.outcome}",
    ]
