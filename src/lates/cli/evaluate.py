"""`lates evaluate`: metrics with intervals, of a calibration on its network or of cached logits."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lates.cli.options import SOURCES, AsJson, Checkpoints, Device, OtherWeights, Seed
from lates.cli.outputs import print_json

if TYPE_CHECKING:
    from lates.report.predictions import Predictions

CACHED = "Cached logits"


def evaluate_file(
    file: Annotated[
        Path,
        typer.Argument(help="What `lates calibrate` wrote; or cached logits, as for `lates fit`.", show_default=False),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", rich_help_panel=SOURCES, help="As for `lates calibrate`.", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            rich_help_panel=SOURCES,
            help="As for `lates calibrate`; its `test` is needed, a loader or a mapping from names to loaders.",
            show_default=False,
        ),
    ] = None,
    checkpoints: Checkpoints = None,
    other_weights: OtherWeights = False,
    device: Device = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=CACHED, help="Labels, where the first file has none.", show_default=False
        ),
    ] = None,
    fitted: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=CACHED, help="What `lates fit` wrote, to judge it here.", show_default=False
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure: accuracy, ECE, NLL, Brier, AUC, with intervals, on rows that served neither training nor fitting.

    A calibration is compared with the network alone and with temperature scaling, on each test set:

        lates evaluate my.lates.safetensors \\
            --model my_module:make_model --checkpoint weights.pt \\
            --data my_module:make_loaders

    Cached logits need no network; with `--fitted`, they are compared before and after:

        lates evaluate test.npz
        lates evaluate test.npz --fitted fitted.safetensors
    """
    if (model is None) != (data is None):
        raise typer.BadParameter("--model and --data go together.", param_hint="--model" if data else "--data")
    from lates.cli.measures import explanation, measure, measures_lines
    from lates.progress import shown

    if model is not None and data is not None:
        if labels is not None or fitted is not None:
            raise typer.BadParameter("is for cached logits, without --model.", param_hint="--labels / --fitted")
        predictions = predict_tests(file, model, checkpoints, data, device, other_weights, seed)
    else:
        predictions = {file.name: read_methods(file, labels, fitted)}
    with shown(True) as progress:
        sets = []
        for done, (name, own) in enumerate(predictions.items(), start=1):
            sets.append(measure(name, own, seed, compared=model is not None or fitted is not None))
            if progress is not None:
                progress("measuring", done, len(predictions))
    if as_json:
        print_json({"file": str(file), "sets": [asdict(one) for one in sets]})
        return
    Console().print(measures_lines(sets), soft_wrap=True)
    typer.echo(f"\n{explanation(sets)}")


def predict_tests(
    file: Path,
    model: str,
    checkpoints: list[Path] | None,
    data: str,
    device: str | None,
    other_weights: bool,
    seed: int,
) -> dict[str, "Predictions"]:
    """What network, temperature and LATES say of each test set."""
    from lates.cli.sources import load_calibrated, make_loaders
    from lates.progress import shown
    from lates.report.predictions import read_predictions

    calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
    loaders = make_loaders(data).needed_test
    with shown(True) as progress:
        return {
            name: read_predictions(calibrated, loader, name, seed=seed, progress=progress)
            for name, loader in loaders.items()
        }


def read_methods(file: Path, labels: Path | None, fitted: Path | None) -> "Predictions":
    """Cached logits as they are, member by member, the head last; or the head before and after what `lates fit` found."""
    from lates.cli.cached import read_cached
    from lates.cli.contents import holds_calibration
    from lates.cli.fitted import read_fitted
    from lates.report.predictions import Predictions

    if holds_calibration(file):
        raise ValueError(
            f"{file} is a calibration. Pass its network and data too: --model module:function --data module:function; "
            "or, if `lates fit` wrote it, pass cached logits first and this file as --fitted."
        )
    cached = read_cached(file, labels)
    methods = cached.members
    if fitted is not None:
        found = read_fitted(fitted)
        methods = {"logits": cached.head, found.method: found.apply(cached)}
    right = {"head": cached.head.argmax(1) == cached.labels}
    return Predictions(cached.labels, dict(methods), right)
