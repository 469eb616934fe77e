"""`lates calibrate`: your network and loaders -> a calibration file."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lates.cli.fit import Loss
from lates.cli.options import OUTPUT, AsJson, Checkpoints, Data, Device, Force, Model
from lates.cli.outputs import check_output, continued, print_json, tell_written
from lates.cli.torchrun import is_first, joined

if TYPE_CHECKING:
    from lates.cli.sources import Network

HOW = "How to calibrate"
NONE, ALL, LAST = "none", "all", "last:"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def calibrate_model(
    *,
    model: Model,
    data: Data,
    checkpoints: Checkpoints = None,
    device: Device = None,
    blocks: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            rich_help_panel=HOW,
            help="Which blocks get a probe: all; last:3, the last three; names with commas between them; none, which is "
            "temperature scaling and needs no `train`. A name that is wrong is answered with the right ones.",
        ),
    ] = ALL,
    loss: Annotated[Loss, typer.Option(rich_help_panel=HOW, help="What probes and weights minimise.")] = Loss.nll,
    budget: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=HOW,
            help="Cap on added parameters, as a share of the network's; none: no cap.",
        ),
    ] = "0.01",
    views: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=HOW,
            help="On which variants of the inputs the probes train: flip, shift, jitter, none, your own function "
            "module:name (inputs -> inputs), or auto, which is shift for images.",
        ),
    ] = "auto",
    passes: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=HOW, help="How many views of each row.", show_default="as views need"),
    ] = None,
    holdout_views: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=HOW,
            help="Against shift: choose the weights on the hold-out and one such variant of each of its rows.",
        ),
    ] = NONE,
    paper: Annotated[bool, typer.Option("--paper", rich_help_panel=HOW, help="The paper to the letter.")] = False,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            rich_help_panel=HOW,
            help="Features kept in memory, e.g. 500M or 8G; the rest goes to a temporary file.",
            show_default="part of what is free",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=HOW, help="Of all that is drawn at random.")] = 0,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Where to write probes and weights (never the network), e.g. my.lates.safetensors.",
            show_default=False,
        ),
    ],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate your own network; its weights stay as they are.

    Write a file `my_module.py` with two functions:

        def make_model():
            return MyNetwork()

        def make_loaders():  # DataLoaders of (inputs, labels)
            return {"train": ..., "holdout": ..., "test": ...}

    and call, in its folder:

        lates calibrate --model my_module:make_model \\
            --checkpoint weights.pt --data my_module:make_loaders \\
            -o my.lates.safetensors

    It needs `holdout`, and `train` unless you say `--blocks none`. Then see what it did: `lates evaluate`, `lates report`.

    On eight cards: `torchrun --nproc-per-node 8 --no-python lates calibrate --device cuda …`
    """
    if is_first():
        check_output(output, force)
    wanted = parse_blocks(blocks)
    share, spill = parse_budget(budget), None if memory is None else parse_bytes(memory)
    import lates
    from lates.cli.sources import find_named, make_loaders, make_network

    def view(name: str, option: str) -> Any:
        return None if name == NONE else find_named(name, option) if ":" in name else name

    with joined(device):
        loaders = make_loaders(data)
        network = make_network(model, checkpoints, device)
        refuse_count(blocks, network)
        start = time.perf_counter()
        calibrated = lates.calibrate(
            network,
            train=loaders.train,
            holdout=loaders.needed_holdout,
            blocks=wanted,
            loss=loss.value,
            budget=share,
            views=view(views, "--views"),
            passes=passes,
            holdout_views=view(holdout_views, "--holdout-views"),
            memory=spill,
            seed=seed,
            settings=lates.PAPER if paper else lates.DEFAULT,
        )
        seconds = time.perf_counter() - start
    if not is_first():
        return
    calibrated.save(output)
    tell_written(output)
    from lates.cli.contents import read_contents

    if as_json:
        print_json({**read_contents(output), "seconds": seconds})
    else:
        typer.echo(str(calibrated))
        loaded = [["--checkpoint", str(path)] for path in checkpoints or ()]
        evaluate = [["lates", "evaluate", str(output)], ["--model", model], *loaded, ["--data", data]]
        typer.echo(f"\nNext:\n{continued(evaluate)}", err=True)


def parse_blocks(text: str) -> list[str] | int | None:
    """all: None; none: no block; last:3: the last three; otherwise names. A bare number is a name: of nn.Sequential's."""
    if text == ALL:
        return None
    if text == NONE:
        return []
    if text.startswith(LAST):
        if not text.removeprefix(LAST).isdecimal():
            raise typer.BadParameter(f'"{text}": expected a number, such as {LAST}3.', param_hint="--blocks")
        return int(text.removeprefix(LAST))
    return [name.strip() for name in text.split(",") if name.strip()]


def refuse_count(text: str, network: "Network") -> None:
    """A number that is no block's name was meant as a count."""
    from lates.blocks import named_modules
    from lates.sampling import read_draws

    if text.isdecimal() and not any(text in named_modules(one) for one in read_draws(network).networks):
        raise typer.BadParameter(
            f'no block is named "{text}"; {LAST}{text} takes the last {text}.', param_hint="--blocks"
        )


def parse_budget(text: str) -> float | None:
    if text == NONE:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise typer.BadParameter(
            f'"{text}": expected a share such as 0.01 or 1%, or none.', param_hint="--budget"
        ) from None


def parse_bytes(text: str) -> int:
    number = text.upper().removesuffix("B").removesuffix("I").rstrip("KMG")
    unit = text.upper().removesuffix("B").removesuffix("I")[len(number) :]
    if not number.isdecimal() or unit not in UNITS:
        raise typer.BadParameter(f'"{text}": expected a number of bytes, such as 500M or 8G.', param_hint="--memory")
    return int(number) * UNITS[unit]
