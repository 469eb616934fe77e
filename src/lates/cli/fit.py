"""`lates fit`: temperature scaling, or a stack of several members, on logits that somebody saved."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lates.cli.options import OUTPUT, AsJson, Force
from lates.cli.outputs import check_output, print_json, tell_written


class Loss(StrEnum):
    nll = "nll"
    brier = "brier"
    soft_ece = "soft_ece"


class Method(StrEnum):
    temperature = "temperature"
    stack = "stack"


Logits = Annotated[
    Path,
    typer.Argument(
        metavar="LOGITS",
        help="Logits, and labels beside them: .npz, .safetensors or .csv; or .npy with --labels.",
        show_default=False,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Labels [n], where the first file has none.", show_default=False),
]


def fit_cached(
    logits: Logits,
    labels: Labels = None,
    method: Annotated[
        Method | None,
        typer.Option(
            help="One temperature for the head, or a weight for each member. Without it: a stack where the file has "
            "several members.",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[Loss, typer.Option(help="What to minimise; nll is solved exactly.")] = Loss.nll,
    regularise: Annotated[
        float, typer.Option(min=0.0, help="c of the penalty (c / sqrt(n)) / 2 · |weights|²; helps where rows are few.")
    ] = 0.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Keep the weights.", show_default=False
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a temperature, or a stack of several members, on cached logits; no network is needed.

    Use rows that trained nothing. In an .npz or .safetensors file `labels` are the labels [n]; all else are logits, one
    array [n, classes], one [n, classes, members], the head last, or one [n, classes] for each member, the network's
    own named `head`. In a .csv, a column `label` and one column for each class.

    Fit, keep, and judge on other rows:

        lates fit holdout.npz -o fitted.safetensors
        lates evaluate test.npz --fitted fitted.safetensors
    """
    if output is not None:
        check_output(output, force)
    from lates import metrics
    from lates.blocks import HEAD
    from lates.cli.cached import read_cached
    from lates.cli.contents import describe_contents, fitted_contents
    from lates.cli.fitted import Fitted
    from lates.stack import fit_stack

    cached = read_cached(logits, labels)
    if method is Method.stack and len(cached.members) == 1:
        raise ValueError(f"{logits} holds the head alone; a stack needs further members. Use --method temperature.")
    members = {HEAD: cached.head} if method is Method.temperature else cached.members
    stack = fit_stack(members, cached.labels, loss=loss.value, regularise=regularise)
    fitted = Fitted.of(stack, cached, metrics.nll(cached.head, cached.labels))
    calibrated = fitted.apply(cached)
    eces = {"before": metrics.ece(cached.head, cached.labels), "after": metrics.ece(calibrated, cached.labels)}
    if output is not None:
        fitted.save(output)
        tell_written(output)
    contents = fitted_contents(fitted)
    if as_json:
        print_json({**contents, "ece": eces, "residual": stack.residual})
    else:
        typer.echo(describe_contents(contents))
        typer.echo(f"ECE there: {eces['before']:.4f} before, {eces['after']:.4f} after. Judge on other rows.")
