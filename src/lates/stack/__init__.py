"""Member logits -> weights >= 0, fitted on the hold-out. One member is temperature scaling.

losses      log-loss, Brier, soft ECE
members     the rows, and sums over them, chunk by chunk
prior       keeps the weights of few rows at the network as it is
newton      the minimum of a function under bounds
objective   the penalised loss as a function of the weights, and its minimum
record      of a fit
safeguards  outlier rows left out, the fall-back, warnings
stack       `fit_stack`
rescaling   the weights for expected shift
"""

from lates.stack.losses import Loss, MeanLoss, find_probe_loss
from lates.stack.members import MemberRows
from lates.stack.record import Stack, combine, member_names
from lates.stack.objective import Objective
from lates.stack.stack import check_loss, fit_stack, fit_weights
from lates.stack.rescaling import rescale
