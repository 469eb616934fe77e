"""The 19 corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C, batched on any device, fixed by a seed.

Read on in the order of the imports: what a random number is, what a pixel is, the linear filters, then the corruptions
in four files, their constants, and the one function that applies them.
"""

from .benchmark import CIFAR100_C, LIKE_JITTER, NAMES, SEVERITIES, STANDARD, UNLIKE_JITTER, corrupt
from .sheet import contact_sheet

__all__ = [
    "CIFAR100_C",
    "LIKE_JITTER",
    "NAMES",
    "SEVERITIES",
    "STANDARD",
    "UNLIKE_JITTER",
    "contact_sheet",
    "corrupt",
]
