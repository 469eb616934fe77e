"""Member logits -> weights beta >= 0, fitted on the hold-out. One member is temperature scaling.

optimum     where to begin: the problem in full, and its solution
losses      log-loss, Brier, soft ECE
members     the rows, and sums over them, chunk by chunk
newton      minima of functions under bounds: Newton's method, BFGS
prior       keeps the weights of few rows at the network as it is
objective   log-loss and prior as a function of the weights
record      of a fit
safeguards  outlier rows left out, the fall-back, warnings
rescaling   the weights for expected shift
stack       `fit_stack`: the same on cached logits

With R the members' logits, the prediction is softmax(R beta), and beta minimises its log-loss plus the prior.
"""

from lates.stack.losses import Loss, MeanLoss, find_probe_loss
from lates.stack.members import MemberRows
from lates.stack.record import Stack, apply_stack, combine, member_names
from lates.stack.objective import Objective
from lates.stack.optimum import check_loss, fit_weights
from lates.stack.rescaling import fit_expecting_shift
from lates.stack.stack import fit_stack
