"""Temperature scaling, softmax(beta z), with beta at the optimum of the log-loss or at a minimum of the Brier score."""

from dataclasses import dataclass

from torch import Tensor

import lates

HEAD = "head"


@dataclass(frozen=True)
class Temperature:
    beta: float
    parameters: int = 1

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return (self.beta * logits.double()).log_softmax(1)


def fit(logits: Tensor, labels: Tensor, *, loss: str = "nll", passes: int = 1) -> Temperature:
    return Temperature(lates.fit_stack({HEAD: logits}, labels, loss=loss, passes=passes).weights.item())
