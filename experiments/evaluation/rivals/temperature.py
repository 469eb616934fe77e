"""Temperature scaling, softmax(beta z), with beta at the optimum of the log-loss or at a minimum of the Brier score."""

from dataclasses import dataclass

from torch import Tensor

import lates


@dataclass(frozen=True)
class Temperature:
    """A `Rival` with its one number, and the log-loss that it has on the hold-out."""

    beta: float
    nll: float
    parameters: int = 1

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return (self.beta * logits.double()).log_softmax(1)


def fit(logits: Tensor, labels: Tensor, *, loss: str = "nll", passes: int = 1) -> Temperature:
    stack = lates.fit_stack([logits], labels, loss=loss, passes=passes)
    return Temperature(stack.weights.item(), stack.nll)
