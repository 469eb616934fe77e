"""Features -> one linear map per block, trained on the training split and cut to the budget.

rows      standardised features, read in chunks
probe     the linear map: folded, cut to low rank, deployed
lbfgs     the descent
sgd       the paper's descent
training  `train_probes`: one probe per block, its decay chosen on the hold-out
budget    `fit_budget`: parameters spent where the hold-out gains most
"""

from lates.probes.probe import Probe, TrainedProbe, affine, leave_to_head, member_logits
from lates.probes.training import train_all, train_probes
from lates.probes.budget import ChosenProbes, choose_probes, fit_budget
