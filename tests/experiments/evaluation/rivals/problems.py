"""Small problems whose answer is known."""

import torch
from torch import Tensor


def overconfident(rows: int = 4000, classes: int = 5, beta: float = 0.4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits z and labels drawn from softmax(beta z): the best map of z is that one."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(rows, classes, generator=generator)
    labels = (beta * logits).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels


def confused(rows: int = 4000, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels drawn from softmax(W z + b) with a W that mixes each class with the next: no temperature can mend that."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator)
    matrix = 0.5 * torch.eye(classes) + 0.3 * torch.eye(classes).roll(1, 0)
    shifts = torch.linspace(-1, 1, classes)
    labels = (logits @ matrix.T + shifts).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels
