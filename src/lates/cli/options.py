"""The options that several commands share, each described once."""

from pathlib import Path
from typing import Annotated

import typer

SOURCES, OUTPUT = "Your model and data", "Output"

Model = Annotated[
    str,
    typer.Option(
        metavar="MODULE:NAME",
        rich_help_panel=SOURCES,
        help="A function in a file of the current folder, or in an installed package, that returns the network: an "
        "nn.Module that gives logits, lates.mc_dropout(…), or a list of nn.Modules, an ensemble.",
        show_default=False,
    ),
]
Data = Annotated[
    str,
    typer.Option(
        metavar="MODULE:NAME",
        rich_help_panel=SOURCES,
        help="A function that returns the loaders: a mapping with `train` (what the network was trained on), `holdout` "
        "(rows that trained nothing) and `test` (a loader, or a mapping from names to loaders: first the plain test "
        "set, then its shifts), or a tuple of them in this order. Each command says which it needs.",
        show_default=False,
    ),
]
Checkpoints = Annotated[
    list[Path] | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE",
        rich_help_panel=SOURCES,
        help="Weights for the network: .safetensors, or what torch.save wrote of a state_dict, alone or under "
        "`state_dict` or `model`. For an ensemble, once for each network.",
        show_default=False,
    ),
]
OtherWeights = Annotated[
    bool,
    typer.Option(
        "--other-weights",
        rich_help_panel=SOURCES,
        help="Go on though the network's weights are not those that it was calibrated with.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=SOURCES,
        help="Where to compute: cpu, cuda, cuda:1, mps. Without it: where the function put the network.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", rich_help_panel=OUTPUT, help="Overwrite an existing file.")]
AsJson = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the results as JSON, for machines.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")]
