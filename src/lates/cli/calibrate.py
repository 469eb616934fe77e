"""`lates calibrate`: your network and loaders -> a calibration file. Under `torchrun`, several processes make it together."""

import os
import re
import shlex
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from lates.cli.console import print_results, print_written, say
from lates.cli.fit import Loss
from lates.cli.options import AsJson, Checkpoints, Data, Device, Force, Model, check_output, parse_share, result

NONE, ALL, LAST = "none", "all", "last:"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}

method = partial(typer.Option, rich_help_panel="Method")


def calibrate_model(
    *,
    model: Model,
    data: Data,
    checkpoints: Checkpoints = None,
    device: Device = None,
    blocks: Annotated[
        str,
        method(
            metavar="NAMES",
            help="Which blocks get a probe: all; last:3, the last three; names separated by commas; or none, which is "
            "temperature scaling and needs no `train`. A wrong name is answered with the list of right ones.",
        ),
    ] = ALL,
    loss: Annotated[Loss, method(help="What the weights minimise.")] = "nll",
    budget: Annotated[
        str,
        method(metavar="SHARE", help="Limit on added parameters, as a share of the network's: 1% or 0.01; none: no limit."),
    ] = "1%",
    views: Annotated[
        str,
        method(
            metavar="NAME",
            help="Augmentation of the probes' training inputs: flip, shift, jitter, robust (images), noise, swap (table "
            "rows), none, a function of yours module:name (inputs -> inputs, or a view of tokens), or auto, which is "
            "robust for images and, with --tokenizer, masks tokens of text.",
        ),
    ] = "auto",
    passes: Annotated[int | None, method(min=1, help="Augmented views per row.", show_default="chosen by --views")] = None,
    expect_shift: Annotated[
        bool,
        method(
            "--expect-shift",
            help="Inputs in use will differ from the hold-out: lower the confidence as changed copies of it need.",
        ),
    ] = False,
    holdout_views: Annotated[
        str,
        method(
            metavar="NAME",
            help="Fit the weights on the hold-out plus one augmented view of each row.",
        ),
    ] = NONE,
    tokenizer: Annotated[
        str | None,
        method(metavar="MODULE:NAME", help="For text: a function that returns the tokenizer.", show_default=False),
    ] = None,
    paper: Annotated[bool, method("--paper", help="The paper's choices instead of ours.")] = False,
    memory: Annotated[
        str | None,
        method(
            metavar="BYTES",
            help="Memory for features, e.g. 500M or 8G; what exceeds it goes to a temporary file.",
            show_default="a part of the free memory",
        ),
    ] = None,
    seed: Annotated[int, method(min=0, max=2**64 - 1, help="Seed of everything that is random.")] = 0,
    output: Annotated[
        Path,
        result(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write probes and weights (never the network), e.g. my.lates.safetensors.",
        ),
    ],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate your own network; its weights stay unchanged.

    Write a file `my_module.py` with two functions:

        def make_model():
            return MyNetwork()

        def make_loaders():  # DataLoaders of (inputs, labels)
            return {"train": ..., "holdout": ..., "test": ...}

    and run, in its folder:

        lates calibrate --model my_module:make_model \\
            --checkpoint weights.pt --data my_module:make_loaders \\
            -o my.lates.safetensors

    It needs `holdout`, and `train` unless you pass `--blocks none`. Look at the result with `lates evaluate` and
    `lates report`.

    On eight GPUs: `torchrun --nproc-per-node 8 --no-python lates calibrate --device cuda …`
    """
    rank, world_size = world()
    if rank == 0:
        check_output(output, force, checkpoints or (), [model, data, views, holdout_views, tokenizer or ""])
    share = None if budget == NONE else parse_share(budget, "--budget")
    chosen, limit = parse_blocks(blocks), None if memory is None else parse_bytes(memory)
    import lates
    from lates.cli.user_code import call_named, find_named, make_loaders, make_network
    from lates.network import shard_loaders

    def view(name: str, option: str) -> Any:
        return None if name == NONE else find_named(name, option) if ":" in name else name

    with process_group(device):
        loaders = shard_loaders(make_loaders(data, "holdout"), rank, world_size)
        network = make_network(model, checkpoints, device)
        start = time.perf_counter()
        calibrated = lates.calibrate(
            network,
            train=loaders.get("train"),
            holdout=loaders["holdout"],
            blocks=chosen,
            loss=loss,
            budget=share,
            views=view(views, "--views"),
            passes=passes,
            expect_shift=expect_shift,
            holdout_views=view(holdout_views, "--holdout-views"),
            tokenizer=call_named(tokenizer, "--tokenizer") if tokenizer else None,
            memory=limit,
            seed=seed,
            settings=lates.PAPER if paper else lates.DEFAULT,
        )
        seconds = time.perf_counter() - start
    if rank > 0:
        return
    calibrated.save(output)
    print_written(output)
    from lates.cli.contents import read_contents

    print_results({**read_contents(output)[1], "seconds": seconds}, str(calibrated), as_json)
    if not as_json:
        loaded = [["--checkpoint", str(path)] for path in checkpoints or ()]
        evaluate = [["lates", "evaluate", str(output)], ["--model", model], *loaded, ["--data", data]]
        command = " \\\n    ".join(map(shlex.join, evaluate))
        say(f"\nNext:\n{command}", err=True)


def world() -> tuple[int, int]:
    """(rank, world size); (0, 1) without torchrun. Rank 0 writes and prints."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ["RANK"]), size) if size > 1 and "RANK" in os.environ else (0, 1)


@contextmanager
def process_group(device: str | None) -> Iterator[None]:
    """Join the other processes, if there are any; "cuda" then means one GPU for each process."""
    rank, size = world()
    if size == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    if device == "cuda":
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= gpus:
            raise ValueError(
                f"--device cuda: {os.environ['LOCAL_WORLD_SIZE']} processes were started here, and there are {gpus} GPUs. "
                "Start one for each GPU: torchrun --nproc-per-node gpu."
            )
        torch.cuda.set_device(local)
    dist.init_process_group()
    with warnings.catch_warnings():
        if rank > 0:
            warnings.simplefilter("ignore")  # every process computes the same and would repeat the warnings of rank 0
        yield
    dist.destroy_process_group()  # not after an error: torchrun then ends the others


def parse_blocks(text: str) -> list[str] | int | None:
    """all: None; none: no block; last:3: the last three; otherwise names. A bare number is a name, as in nn.Sequential."""
    if text == ALL:
        return None
    if text == NONE:
        return []
    if text.startswith(LAST):
        if not text.removeprefix(LAST).isdecimal():
            raise typer.BadParameter(f'"{text}": expected a number, such as {LAST}3.', param_hint="--blocks")
        return int(text.removeprefix(LAST))
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_bytes(text: str) -> int:
    parts = re.fullmatch(r"(\d+)([KMG]?)(I?B)?", text.upper())
    if parts is None:
        raise typer.BadParameter(f'"{text}": expected a number of bytes, such as 500M or 8G.', param_hint="--memory")
    return int(parts[1]) * UNITS[parts[2]]
