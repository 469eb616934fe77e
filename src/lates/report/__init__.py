"""The report: what a calibration did, as one HTML page that opens from disk.

predictions    one pass over a test set -> the logits of each method
findings       all numbers
sentences      what the numbers mean, and how they are written
charts         all charts
sections       the text, the places of the charts, the tables
page           one HTML file
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lates.model import CalibratedModel
from lates.report.predictions import LATES, NETWORK, TEMPERATURE, Predictions, read_predictions
from lates.report.findings import measure
from lates.runtime import OptionalImport, Progress, check_seed, check_target, write_whole

__all__ = ["LATES", "NETWORK", "TEMPERATURE", "Predictions", "read_predictions", "write_report"]


def write_report(
    calibrated: CalibratedModel,
    test: Iterable[Any] | Mapping[str, Iterable[Any]],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    class_names: Sequence[str] | None = None,
    seed: int = 0,
    progress: bool | Progress = True,
) -> None:
    """Write one self-contained HTML page that shows what the calibration did on inputs that it has not seen.

    test         loader of (inputs, labels); or name -> loader, the plain test set first, shifted ones after it
    path         of the page, written whole or not at all
    title        of the page; by default the network's class and the number of classes
    class_names  one for each class; by default their numbers
    seed         of the bootstrap and of MC dropout's samples
    progress     bars on a terminal or in a notebook; False: silence; or a function (stage, done, total)

    The page compares the network before calibration, temperature scaling and the calibrated model. Needs the extra
    `report`.

    >>> lates.write_report(calibrated, test_loader, "report.html")
    >>> lates.write_report(calibrated, {"clean": test_loader, "fog": fog_loader}, "report.html", class_names=names)
    """
    if not isinstance(calibrated, CalibratedModel):
        raise TypeError(
            f"calibrated came as {type(calibrated).__name__}; expected what lates.calibrate or lates.load returned."
        )
    check_target(path)
    check_seed(seed)
    sets = {str(name): loader for name, loader in test.items()} if isinstance(test, Mapping) else {"test": test}
    if not sets:
        raise ValueError("No test set came: expected a loader, or a mapping name -> loader with at least one.")
    if class_names is not None and len(class_names) != calibrated.fit.classes:
        raise ValueError(f"{len(class_names)} class names came for {calibrated.fit.classes} classes; expected one for each.")
    with OptionalImport("report", "The report"):
        from lates.report.page import page_of
    predictions = read_predictions(calibrated, sets, seed=seed, progress=progress)
    findings = measure(calibrated, predictions, class_names, seed)
    heading = title or f"{type(calibrated.networks[0].network.network).__name__}, {calibrated.fit.classes:,} classes"
    write_whole(Path(path), page_of(findings, heading).encode("utf-8", "backslashreplace"))
