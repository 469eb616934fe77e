"""The calibrated classifier: an nn.Module, saved and loaded without the network.

storage      the file: safetensors, verified on reading
consistency  whether its parts fit one another
stacked      one network with its probes and weights
table        the members and the fit as text
calibrated   `CalibratedModel`, `load`
"""

from lates.model.storage import (
    KEY,
    OtherWeightsWarning,
    differences,
    read_calibration,
    write_calibration,
)
from lates.model.consistency import read_record
from lates.model.stacked import StackedNetwork
from lates.model.table import fit_lines, member_table
from lates.model.calibrated import CalibratedModel, load, read_stack
