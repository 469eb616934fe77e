"""The options that several commands share, each described once."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

source = partial(typer.Option, rich_help_panel="Your model and data", show_default=False)
result = partial(typer.Option, rich_help_panel="Output", show_default=False)

CalibrationFile = Annotated[Path, typer.Argument(help="A file written by `lates calibrate`.", show_default=False)]
Model = Annotated[
    str,
    source(
        metavar="MODULE:NAME",
        help="A function that returns the network, in a file of the current folder or in an installed package. The "
        "network is an nn.Module that returns logits, lates.mc_dropout(…), or a list of nn.Modules (an ensemble).",
    ),
]
Data = Annotated[
    str,
    source(
        metavar="MODULE:NAME",
        help="A function that returns the loaders: a dict with `train` (the network's training data), `holdout` (data "
        "used for no training) and `test` (a loader, or a dict of names and loaders: first the plain test set, then "
        "shifted ones), or a tuple in this order. Each command says which of them it needs.",
    ),
]
Checkpoints = Annotated[
    list[Path] | None,
    source(
        "--checkpoint",
        metavar="FILE",
        help="Weights for the network: .safetensors, or a state_dict saved by torch.save, alone or under `state_dict` "
        "or `model`. For an ensemble, pass it once per network.",
    ),
]
OtherWeights = Annotated[
    bool,
    source("--other-weights", help="Continue although the network's weights are not those it was calibrated with."),
]
Device = Annotated[
    str | None,
    source(metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, mps. Default: where your function put the network."),
]
Force = Annotated[bool, result("--force", help="Overwrite an existing file.")]
AsJson = Annotated[bool, result("--json", help="Print the results as JSON.")]
Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of everything that is random.")]


def check_output(path: Path, force: bool, inputs: Iterable[Path | None] = (), sources: Iterable[str] = ()) -> None:
    """Refuse a path that cannot be written to, an input, or an existing file, before any work is done.

    Inputs are also the files among sources such as folder/file.py:name.
    """
    from lates.runtime import check_target

    target = check_target(path)
    source_files = [file for file, _, _ in (source.rpartition(":") for source in sources) if file.endswith(".py")]
    for one in (*filter(None, inputs), *source_files):
        if os.path.realpath(one) == str(target):
            raise FileExistsError(f"{path} is an input of this command, and writing would destroy it. Name another file.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already. Pass --force to overwrite it, or name another file.")


def parse_share(text: str, option: str) -> float:
    """5% or 0.05"""
    from lates.runtime import check_share

    try:
        return check_share(text, option)
    except ValueError as error:
        raise typer.BadParameter(str(error).removeprefix(f"{option}="), param_hint=option) from None
