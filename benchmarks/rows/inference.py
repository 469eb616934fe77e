"""Row 5: what the calibrated network costs beyond the plain one: time at batch 1 and 128, eager and compiled; operations."""

import math
import statistics
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import lates
from benchmarks.contest import OURS, ROUNDS, THREADS, interleave
from benchmarks.records import Goal, Group, Line
from benchmarks.rows.network import make_loader, make_network
from benchmarks.rows.stack import timed

BATCHES = (1, 128)
TRAIN, HOLDOUT = 256, 256
OVERHEAD, OPERATIONS = 0.03, 0.007
LEAST_SECONDS = 0.2

Forward = Callable[[Tensor], Tensor]


def measure(
    batches: tuple[int, ...] = BATCHES,
    modes: tuple[str, ...] = ("eager", "compiled"),
    rounds: int = ROUNDS,
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
    seconds, _ = timed(lambda: forward(plain, 1))()
    calls = math.ceil(LEAST_SECONDS / seconds)
    runs = {"plain": timed(lambda: forward(plain, calls)), OURS: timed(lambda: forward(ours, calls))}
    base, own = interleave(runs, rounds)
    if base.fault or own.fault:
        raise RuntimeError(base.fault or own.fault)
    overhead = statistics.median(a / b for a, b in zip(own.seconds, base.seconds, strict=False)) - 1
    lines = (
        Line(OURS, own.median / calls, ratio=1.0, repeats=tuple(own.seconds)),
        Line("plain network", base.median / calls, ratio=base.median / own.median, repeats=tuple(base.seconds)),
    )
    promised = mode == "compiled" and batch == max(BATCHES)
    goal = Goal("under 3 % more time" if promised else "more time", f"{100 * overhead:+.1f} %", None)
    if promised:
        goal = Goal(goal.text, goal.found, overhead < OVERHEAD)
    where = "" if device == "cpu" else f", {device}"
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
