"""What adapters on torch's tensors share."""

import numpy as np
import torch
from torch import Tensor


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(logits), torch.from_numpy(labels)


def softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=1)
