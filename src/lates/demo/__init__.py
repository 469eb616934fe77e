"""The command `lates demo`: the main job, on images and a network that come with the package.

images ─► network (training) ─► shifts ─► comparison ─► table, page
"""

from lates.demo.comparison import Calibrations, Comparison, calibrate_all, compare
from lates.demo.images import Split, Splits, load_splits
from lates.demo.network import SmallResNet, load_network, same_weights, save_network
from lates.demo.page import write_page
from lates.demo.table import show
from lates.demo.training import train_network

__all__ = [
    "Calibrations",
    "Comparison",
    "SmallResNet",
    "Split",
    "Splits",
    "calibrate_all",
    "compare",
    "load_network",
    "load_splits",
    "same_weights",
    "save_network",
    "show",
    "train_network",
    "write_page",
]
