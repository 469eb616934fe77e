"""Row 5: what the calibrated network costs beyond the plain one: time at batch 1 and 128, eager and compiled; operations."""

import math
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import lates
from benchmarks.contest import OURS, THREADS, in_units, seconds_of
from benchmarks.records import Goal, Group, Line, beside_unit
from benchmarks.rows.network import make_loader, make_network

BATCHES = (1, 128)
TRAIN, HOLDOUT = 256, 256
OVERHEAD, OPERATIONS = 0.03, 0.007
PAIRS, LEAST_SECONDS = 15, 0.2

Forward = Callable[[Tensor], Tensor]


def measure(
    batches: tuple[int, ...] = BATCHES,
    modes: tuple[str, ...] = ("eager", "compiled"),
    rounds: int = PAIRS,
    threads: int = THREADS,
    device: str = "cpu",
    train: int = TRAIN,
    holdout: int = HOLDOUT,
) -> Iterator[Group]:
    torch.set_num_threads(threads)
    network = make_network().to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrated = lates.calibrate(
            network, train=make_loader(train, seed=1), holdout=make_loader(holdout, seed=2), progress=False
        ).eval()
    yield _operations(network, calibrated, device)
    for mode in modes:
        for batch in batches:
            plain, ours = (_in_mode(mode, model) for model in (network, calibrated))
            try:
                yield _overhead(plain, ours, batch, mode, rounds, device)
            except RuntimeError as fault:  # the compiler has needs of its own
                title = f"Forward pass, batch {batch}, {mode}"
                yield Group(5, title, (), absent={title: str(fault).strip().partition("\n")[0]})


def _in_mode(mode: str, model: nn.Module) -> Forward:
    """Compiled for one size of batch."""
    if mode == "eager":
        return model
    torch.compiler.reset()
    return torch.compile(model, dynamic=False)


def _overhead(plain: Forward, ours: Forward, batch: int, mode: str, rounds: int, device: str) -> Group:
    images = torch.rand(batch, 3, 32, 32, device=device)

    @torch.inference_mode()
    def forward(model: Forward, calls: int) -> float:
        logits = images
        for _ in range(calls):
            logits = model(images)
        return float(logits[0, 0])

    for model in (plain, ours):
        forward(model, 2)
    calls = math.ceil(LEAST_SECONDS / seconds_of(lambda: forward(plain, 1)))
    times = in_units(
        lambda: seconds_of(lambda: forward(plain, calls)), lambda: seconds_of(lambda: forward(ours, calls)), rounds
    )
    more, low, high = (100 * (ratio - 1) for ratio in (times.median, *times.quartiles))
    found = f"{more:+.1f} % (quartiles {low:+.1f} to {high:+.1f})"
    promised = mode == "compiled" and batch == max(BATCHES)
    goal = Goal("under 3 % more time", found, more < 100 * OVERHEAD) if promised else Goal("more time", found, None)
    where = "" if device == "cpu" else f", {device}"
    lines = beside_unit(OURS, "plain network", times, calls=calls)
    return Group(5, f"Forward pass, batch {batch}, {mode}{where}", lines, (goal,))


def _operations(plain: nn.Module, calibrated: lates.CalibratedModel, device: str) -> Group:
    """Operations of matrix products and convolutions, as torch counts them."""
    images = torch.rand(1, 3, 32, 32, device=device)
    counts = []
    for model in (plain, calibrated):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(images)
        counts.append(counter.get_total_flops())
    more = counts[1] / counts[0] - 1
    voting = f"{sum(weight > 0 for weight in calibrated.weights.values())} of {len(calibrated.weights)} members vote"
    lines = (
        Line(OURS, counts[1] / 1e6, unit="MFLOP", ratio=1.0, reached=voting),
        Line("plain network", counts[0] / 1e6, unit="MFLOP", ratio=counts[0] / counts[1]),
    )
    goal = Goal("under 0.7 % more operations", f"{100 * more:+.3f} %", more < OPERATIONS)
    return Group(5, "Operations of a forward pass, one image", lines, (goal,))
