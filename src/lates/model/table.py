"""A stack as text of 80 columns, or as HTML: its members, and how it was fitted."""

from collections.abc import Mapping, Sequence
from html import escape

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


def member_html(stack: Stack, notes: Sequence[str]) -> str:
    """The members as an HTML table with a bar for each contribution, and notes below; no script, no style sheet."""
    rows = ""
    for name, weight, share in zip(stack.names, stack.weights.tolist(), stack.contributions.values(), strict=True):
        bar = f'<div style="background: currentColor; opacity: .4; height: .7em; width: {100 * share:.1f}px"></div>'
        cells = (escape(name), f"{weight:.4g}", f"{share:.1%}", bar)
        rows += "<tr>" + "".join(f'<td style="text-align: left">{cell}</td>' for cell in cells) + "</tr>"
    head = "".join(f'<th style="text-align: left">{title}</th>' for title in ("member", "weight", "contribution", ""))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{'<br>'.join(map(escape, notes))}</p>"
