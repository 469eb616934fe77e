"""Layer-stack temperature scaling: calibrate any PyTorch classifier with all of its layers.

The names below stand in the order in which data flows; `tests/test_architecture.py` holds the order of the files.
"""

from lates import metrics
from lates.algorithm import calibrate
from lates.blocks import list_blocks
from lates.estimators import LogitStack, TemperatureScaling
from lates.features import Features, extract
from lates.model import CalibratedModel, load
from lates.probes import TrainedProbe, train_probes
from lates.sampling import mc_dropout
from lates.settings import DEFAULT, PAPER, Settings
from lates.stack import Stack, fit_stack

__version__ = "0.1.0"

__all__ = [
    "DEFAULT",
    "PAPER",
    "CalibratedModel",
    "Features",
    "LogitStack",
    "Settings",
    "Stack",
    "TemperatureScaling",
    "TrainedProbe",
    "calibrate",
    "extract",
    "fit_stack",
    "list_blocks",
    "load",
    "mc_dropout",
    "metrics",
    "train_probes",
]
