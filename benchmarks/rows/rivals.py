"""Row 8: rivals of the experiments beside the package that has them too, on the logits of a trained network. Each is fitted on
one half of the rows and judged on the other. A rival that is fitted badly would flatter LATES."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.contest import OURS, THREADS, compete, gather
from benchmarks.environments import HOME
from benchmarks.records import Goal, Group, beside_ours, rank

LOGITS = Path(__file__).parents[1] / "resnet32-cifar10.npz"
"""Of the released ResNet32 on CIFAR-10's test images, float16; the hold-out first, then the other half."""
RIVALS = {
    "vector_scaling": "vector scaling",
    "svs": "structured vector scaling",
    "sms": "structured matrix scaling",
    "ets": "ensemble temperature scaling",
}
AGREEMENT = 1e-4


def measure(rounds: int = 1, threads: int = THREADS, folder: Path = HOME / "data") -> Iterator[Group]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = dict(np.load(LOGITS))
    files = {name: folder / f"{LOGITS.stem}-{name}.npy" for name in arrays}
    np.save(files["logits"], arrays["logits"].astype(np.float32))
    np.save(files["labels"], arrays["labels"].astype(np.int64))
    with ExitStack() as stack:
        contenders, absent = gather(stack, ("probmetrics",), threads)
        for contender in contenders:
            contender.ask(do="load", **{name: str(path) for name, path in files.items()})
        for task, title in RIVALS.items():
            ours, peers, faults = rank(compete(contenders, task, rounds))
            lines = tuple(beside_ours(ours, each, f"NLL {each.middle.value:.6f}") for each in (ours, *peers))
            excess = [ours.middle.value - each.middle.value for each in peers]
            goals = [Goal(f"NLL at most {AGREEMENT:.0e} above", f"{each:+.1e}", each <= AGREEMENT) for each in excess]
            yield Group(8, f"{OURS}' experiments: {title}", lines, tuple(goals), absent | faults)
