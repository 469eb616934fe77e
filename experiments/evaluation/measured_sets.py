"""What was measured on one test set, as a file: an evaluation that was stopped goes on after the last."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.files import DamagedError, format_json, parse_json, write_whole

Measured = tuple[Mapping[str, float], np.ndarray]
"""Metrics, and block means [metrics, blocks]."""
Measurement = Mapping[str, Measured]
"""Of one test set, by method."""


@dataclass(frozen=True)
class MeasuredSets:
    """Files in a folder, one for each test set; those that were measured in another way, and damaged ones, do not count.

    identity    what has to be the same in all of them, as it reads back from JSON
    """

    folder: Path
    identity: Mapping[str, Any]

    def __len__(self) -> int:
        return len([*self.folder.glob("*.json")])

    def load(self, name: str) -> Measurement | None:
        with suppress(OSError, DamagedError):
            facts = parse_json((self.folder / f"{name}.json").read_bytes())
            if facts["identity"] == self.identity:
                return {
                    method: ({metric: float(value) for metric, value in metrics.items()}, np.asarray(means))
                    for method, (metrics, means) in facts["methods"].items()
                }
        return None

    def save(self, name: str, measurement: Measurement) -> None:
        methods = {  # as words, since JSON has no NaN
            method: ({metric: repr(value) for metric, value in metrics.items()}, means.tolist())
            for method, (metrics, means) in measurement.items()
        }
        write_whole(self.folder / f"{name}.json", format_json({"identity": self.identity, "methods": methods}))

    def remove(self) -> None:
        for file in self.folder.glob("*.json*"):
            file.unlink()
        with suppress(OSError):
            self.folder.rmdir()
