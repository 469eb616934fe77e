"""The 19 corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C, batched on any device, fixed by a seed.

To read from top to bottom: draws (what a random number is), pixels (what a grey level is), linear (filters as
matrices); noise, blur, weather, droplets, digital (the corruptions); constants, benchmark (names and `corrupt`).
"""

from experiments.data.corruptions.benchmark import (
    CIFAR100_C,
    LIKE_JITTER,
    NAMES,
    SEVERITIES,
    STANDARD,
    UNLIKE_JITTER,
    corrupt,
)

__all__ = ["CIFAR100_C", "LIKE_JITTER", "NAMES", "SEVERITIES", "STANDARD", "UNLIKE_JITTER", "corrupt"]
