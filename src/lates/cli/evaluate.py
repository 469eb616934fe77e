"""`lates evaluate`: metrics with intervals, of a calibration on its network or of saved logits."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lates.cli.console import print_json, say
from lates.cli.options import AsJson, Checkpoints, Device, OtherWeights, Seed, parse_share, source

saved_logits = partial(typer.Option, rich_help_panel="Saved logits", show_default=False)


def evaluate_file(
    file: Annotated[
        Path,
        typer.Argument(help="A file written by `lates calibrate`; or logits, as for `lates fit`.", show_default=False),
    ],
    model: Annotated[str | None, source(metavar="MODULE:NAME", help="As for `lates calibrate`.")] = None,
    data: Annotated[
        str | None,
        source(
            metavar="MODULE:NAME",
            help="As for `lates calibrate`; `test` is needed: a loader, or a dict of names and loaders.",
        ),
    ] = None,
    checkpoints: Checkpoints = None,
    other_weights: OtherWeights = False,
    device: Device = None,
    labels: Annotated[Path | None, saved_logits(metavar="FILE", help="Labels [n], if the first file has none.")] = None,
    fitted: Annotated[
        Path | None,
        saved_logits(metavar="FILE", help="A file written by `lates fit`, to evaluate it on these logits."),
    ] = None,
    risk: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Selective prediction: find the confidence from which at most this share of the accepted predictions is "
            "wrong, e.g. 5%.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy, ECE, NLL, Brier and AUC with intervals, on rows used for neither training nor fitting.

    A calibration is compared with the network alone and with temperature scaling, on each test set:

        lates evaluate my.lates.safetensors \\
            --model my_module:make_model --checkpoint weights.pt \\
            --data my_module:make_loaders

    Saved logits need no network; with `--fitted`, they are compared before and after:

        lates evaluate test.npz
        lates evaluate test.npz --fitted fitted.safetensors

    `--risk 5%` adds a threshold for each method: on new inputs like those of the (first) test set, at most 5 % of the
    predictions with that confidence or more are wrong, guaranteed but for a chance of 5 %.
    """
    if (model is None) != (data is None):
        raise typer.BadParameter("--model and --data go together.", param_hint="--model" if data else "--data")
    if model is not None and (labels is not None or fitted is not None):
        raise typer.BadParameter("is for saved logits, without --model.", param_hint="--labels / --fitted")
    wanted = None if risk is None else parse_share(risk, "--risk")
    from lates import metrics
    from lates.cli.table import comparison_text, select_all, selective_lines

    if model is not None and data is not None:
        from lates.cli.user_code import load_calibrated, make_loaders
        from lates.report import read_predictions

        calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
        tests = read_predictions(calibrated, make_loaders(data, "test")["test"], seed=seed)
    else:
        from lates.cli.contents import read_methods

        tests = {file.name: read_methods(file, labels, fitted)}
    others = list(next(iter(tests.values())).logits)[:-1] if model is not None or fitted is not None else []
    comparisons = {name: metrics.compare(one.logits, one.labels, baselines=others, seed=seed) for name, one in tests.items()}
    auc = {name: one.by_method(metrics.auc) for name, one in tests.items()}
    selected = None if wanted is None else select_all(tests, wanted, seed)
    if as_json:
        sets = [{"name": name, **asdict(one), "auc": auc[name]} for name, one in comparisons.items()]
        print_json({"file": str(file), "sets": sets, **({"selective": selected} if selected else {})})
        return
    baseline = others[-1] if others else None
    Console().print(comparison_text(comparisons, auc, baseline, intervals=True), soft_wrap=True)
    if selected is not None:
        say(f"\n{selective_lines(selected)}")
