"""Layer-stack temperature scaling: calibrate any PyTorch classifier with all of its layers.

The names below stand in the order in which data flows, and so do the files they come from.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lates.settings import DEFAULT, PAPER, Settings
    from lates.blocks import list_blocks
    from lates import views
    from lates.features import Features, extract
    from lates.stack import Stack, fit_stack
    from lates.linear import Probe, TrainedProbe, member_logits
    from lates.probes import train_probes
    from lates.budget import fit_budget
    from lates.sampling import mc_dropout
    from lates.model import CalibratedModel, load
    from lates.algorithm import calibrate
    from lates import metrics
    from lates.estimators import LogitStack, TemperatureScaling
    from lates.report import write_report

__version__ = "0.1.0"

__all__ = [
    "DEFAULT",
    "PAPER",
    "Settings",
    "list_blocks",
    "views",
    "Features",
    "extract",
    "Stack",
    "fit_stack",
    "Probe",
    "TrainedProbe",
    "member_logits",
    "train_probes",
    "fit_budget",
    "mc_dropout",
    "CalibratedModel",
    "load",
    "calibrate",
    "metrics",
    "LogitStack",
    "TemperatureScaling",
    "write_report",
]

if not TYPE_CHECKING:
    FILES = [
        "settings",
        "blocks",
        "views",
        "features",
        "stack",
        "linear",
        "probes",
        "budget",
        "sampling",
        "model",
        "algorithm",
        "metrics",
        "estimators",
        "report",
    ]

    def __getattr__(name: str) -> object:
        """All files are read when the first public name is asked for: `lates --help` need not wait for torch."""
        if name not in __all__:
            raise AttributeError(f'lates has no attribute "{name}". Public names: {", ".join(__all__)}.')
        files = [import_module(f"lates.{file}") for file in FILES]
        homes = {public: file for file in reversed(files) for public in __all__ if hasattr(file, public)}
        globals().update({public: getattr(file, public) for public, file in homes.items()})
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
