"""Member logits -> weights >= 0, fitted on the hold-out. One member is temperature scaling.

losses     log-loss, Brier, soft ECE
holdout    sums over the rows, chunk by chunk
prior      keeps the weights of few rows at the network as it is
objective  the penalised loss as a function of the weights
newton     its minimum under bounds
record     of a fit
doubts     rows left out, the fall-back, warnings
mean       the mean prediction of several draws
stack      `fit_stack`, and `fit_members` for several draws
"""

from lates.stack.losses import Loss, MeanLoss, find_probe_loss
from lates.stack.holdout import Holdout
from lates.stack.record import Stack, combine, member_names
from lates.stack.stack import check_loss, fit_holdout, fit_members, fit_stack
