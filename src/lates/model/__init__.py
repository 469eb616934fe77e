"""The calibrated classifier: an nn.Module, saved and loaded without the network.

storage      the file: safetensors, verified on reading
stacked      one network with its probes and weights
consistency  a file's parts as records that fit one another
table        the members and the fit as text
calibrated   `CalibratedModel`, `load`
"""

from lates.model.storage import KEY, OtherWeightsWarning, differences, read_calibration, write_calibration
from lates.model.stacked import NetworkCalibration, StackedNetwork
from lates.model.consistency import FITTED, SavedCalibration, naming_damaged_file, parse_saved, read_saved, read_stack
from lates.model.table import fit_lines, member_table
from lates.model.calibrated import CalibratedModel, load
