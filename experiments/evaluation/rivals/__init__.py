"""What LATES is compared with: one idea a file, written from the papers' formulas.

Every rival on logits has `fit(logits, labels)`, which returns a `Rival`.

descent        L-BFGS-B on a function of torch
affine         an affine map before the softmax
temperature    one temperature, exact
vector         a scale and a shift for each class
structured     structured matrix scaling, and its diagonal
dirichlet      a full matrix with an off-diagonal penalty
mixture        ensemble temperature scaling
isotonic       one monotone map of all probabilities
spline         a spline on the top label
parameterised  a temperature for each row, from its largest logits
density        a temperature for each row, from distances to the training data
augmentation   the mean over a test image and its mirror image
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rival:
    """Maps logits [n, classes] to log-probabilities [n, classes]; `parameters` counts the numbers that it learned."""

    log_probabilities: Callable[[Tensor], Tensor]
    parameters: int
