"""What `lates demo` computes: the main task, on images and a network that come with the package.

images ─► network (training) ─► shifts ─► experiment
"""

from lates.demo.images import CLASS_NAMES, Split, Splits, load_splits
from lates.demo.network import SmallResNet, load_network, save_network
from lates.demo.training import EPOCHS, train_network
from lates.demo.shifts import shift_split
from lates.demo.experiment import LATES, NO_VIEWS, TEMPERATURE, Calibrated, Cost, Results, calibrate_all, compare_all
