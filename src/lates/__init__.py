"""Layer-stack temperature scaling: calibrate any PyTorch classifier with all of its layers.

The names below stand in the order in which data flows, and so do the files they come from.
"""

from lates.settings import DEFAULT, PAPER, Settings
from lates.blocks import list_blocks
from lates.features import Features, extract
from lates.stack import Stack, fit_stack
from lates.probes import Probe, TrainedProbe, member_logits, train_probes
from lates.budget import fit_budget
from lates.sampling import mc_dropout
from lates.model import CalibratedModel, load
from lates.algorithm import calibrate
from lates import metrics
from lates.estimators import LogitStack, TemperatureScaling

__version__ = "0.1.0"

__all__ = [
    "DEFAULT",
    "PAPER",
    "Settings",
    "list_blocks",
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
]
