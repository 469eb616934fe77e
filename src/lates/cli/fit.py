"""`lates fit`: temperature scaling, or a stack of several members, on saved logits."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from lates.cli.console import print_results, print_written
from lates.cli.options import AsJson, Force, check_output, result
from lates.settings import DEFAULT

Loss = Literal["nll", "brier", "soft_ece"]


def fit_cached(
    logits: Annotated[
        Path,
        typer.Argument(
            metavar="LOGITS",
            help="Logits and labels: .npz, .safetensors or .csv; or logits as .npy with --labels.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels [n], if the first file has none.", show_default=False),
    ] = None,
    method: Annotated[
        Literal["temperature", "stack"] | None,
        typer.Option(
            help="One temperature for the head, or one weight per member.",
            show_default="stack if the file has several members",
        ),
    ] = None,
    loss: Annotated[Loss, typer.Option(help="What to minimise; nll is solved exactly.")] = "nll",
    prior: Annotated[
        float,
        typer.Option(min=0.0, help="How strongly few rows keep the weights at the network as it is; 0: not at all."),
    ] = DEFAULT.prior,
    regularise: Annotated[float, typer.Option(min=0.0, help="c of the paper's penalty (c / sqrt(n)) / 2 · |weights|².")] = 0.0,
    output: Annotated[Path | None, result("--output", "-o", metavar="FILE", help="Where to write the weights.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a temperature, or a stack of several members, on saved logits; no network is needed.

    Use rows that were used for no training. In an .npz or .safetensors file, `labels` are the labels [n]; everything
    else is logits: one array [n, classes]; or one array [n, classes, members] with the head last; or one array
    [n, classes] per member, with the network's output named `head`. In a .csv file: a column `label` and one column
    per class.

    Fit on some rows, then evaluate on others:

        lates fit holdout.npz -o fitted.safetensors
        lates evaluate test.npz --fitted fitted.safetensors
    """
    if output is not None:
        check_output(output, force, [logits, labels])
    from lates import metrics
    from lates.cli.contents import describe_contents, fitted_contents, save_fitted
    from lates.cli.saved_logits import read_logits
    from lates.network import HEAD
    from lates.stack import apply_stack, fit_stack

    members, truth = read_logits(logits, labels)
    if method == "stack" and len(members) == 1:
        raise ValueError(f"{logits} holds the head alone; a stack needs further members. Use --method temperature.")
    if method == "temperature":
        members = {HEAD: members[HEAD]}
    stack = fit_stack(members, truth, loss=loss, prior=prior, regularise=regularise)
    if output is not None:
        save_fitted(stack, output)
        print_written(output)
    before, after = (metrics.ece(values, truth) for values in (members[HEAD], apply_stack(stack, members)))
    contents = fitted_contents(stack)
    results = {**contents, "ece": {"before": before, "after": after}, "residual": stack.residual}
    text = f"{describe_contents(stack, contents)}\nECE there: {before:.4f} before, {after:.4f} after. Evaluate on other rows."
    print_results(results, text, as_json)
