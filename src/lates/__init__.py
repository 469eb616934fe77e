"""Layer-stack temperature scaling: calibrate any PyTorch classifier with all of its layers."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

PUBLIC_NAMES = {
    "Settings": "settings",
    "DEFAULT": "settings",
    "PAPER": "settings",
    "PAPER_LITERAL": "settings",
    "calibrate": "algorithm",
    "list_blocks": "network",
    "views": "network.views",
    "mc_dropout": "network",
    "Features": "network",
    "extract": "network",
    "Probe": "probes",
    "TrainedProbe": "probes",
    "train_probes": "probes",
    "fit_budget": "probes",
    "member_logits": "probes",
    "Stack": "stack",
    "fit_stack": "stack",
    "CalibratedModel": "model",
    "load": "model",
    "metrics": "metrics",
    "selective": "metrics.selective",
    "plot": "plot",
    "TemperatureScaling": "estimators",
    "LogitStack": "estimators",
    "write_report": "report",
}
"""The public names in the order of the flow -> the module that holds them, or that they are."""

__all__ = [*PUBLIC_NAMES]

if TYPE_CHECKING:
    from lates.settings import DEFAULT, PAPER, PAPER_LITERAL, Settings
    from lates.algorithm import calibrate
    from lates.network import Features, extract, list_blocks, mc_dropout, views
    from lates.probes import Probe, TrainedProbe, fit_budget, member_logits, train_probes
    from lates.stack import Stack, fit_stack
    from lates.model import CalibratedModel, load
    from lates import metrics, plot
    from lates.metrics import selective
    from lates.estimators import LogitStack, TemperatureScaling
    from lates.report import write_report
else:

    def __getattr__(name: str) -> object:
        """A name is imported when it is first used: `lates --help` need not wait for torch."""
        if name not in PUBLIC_NAMES:
            raise AttributeError(f'lates has no attribute "{name}". Public names: {", ".join(PUBLIC_NAMES)}.')
        module = import_module(f"lates.{PUBLIC_NAMES[name]}")
        globals()[name] = getattr(module, name, module)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *PUBLIC_NAMES})
