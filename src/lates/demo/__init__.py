"""What `lates demo` computes: the main task, on images and a network that come with the package.

images      12,000 images of Fashion-MNIST
network     a small residual network, and how it was trained
shifts      noise, lower contrast, blur
experiment  one network, three calibrations, four test sets
"""

from lates.demo.images import CLASS_NAMES, Split, Splits, load_splits
from lates.demo.network import SmallResNet, load_network, train_network
from lates.demo.shifts import shift_split
from lates.demo.experiment import LATES, NETWORK, NO_VIEWS, TEMPERATURE, Cost, Results, run_experiment
