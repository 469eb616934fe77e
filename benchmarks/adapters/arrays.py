"""The softmax of contenders that work on numpy arrays and bring none of their own."""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = logits - logits.max(axis=1, keepdims=True)
    np.exp(exponentials, out=exponentials)
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials
