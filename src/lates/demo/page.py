"""The demonstration as a page: the report on one of its calibrations, with the shifts that the table shows."""

import os

from lates.demo.comparison import JITTERED, Calibrations
from lates.demo.images import Splits
from lates.demo.shifts import shift_split
from lates.progress import Progress
from lates.report import write_report

CLASS_NAMES = "T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"


def write_page(
    made: Calibrations,
    splits: Splits,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    progress: bool | Progress = False,
) -> None:
    """The report on LATES with jittered views, which the table shows beside plain LATES."""
    sets = {name: split.batches for name, split in shift_split(splits.test, seed).items()}
    title = f"A small residual network on Fashion-MNIST, {JITTERED}"
    write_report(made.models[JITTERED], sets, path, title=title, class_names=CLASS_NAMES, seed=seed, progress=progress)
