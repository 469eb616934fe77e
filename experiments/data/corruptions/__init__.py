"""The 19 corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C and the ten of CIFAR-10-C-bar, batched on any device, fixed
by a seed.

To read from top to bottom: draws (what a random number is), pixels (what a grey level is), linear (filters as
matrices); noise, blur, weather, droplets, digital, bar (the corruptions); constants, benchmark (names and `corrupt`).
"""

from experiments.data.corruptions.benchmark import (
    BAR_NAMES,
    CIFAR100_C,
    LIKE_JITTER,
    NAMES,
    SEVERITIES,
    STANDARD,
    UNLIKE_JITTER,
    corrupt,
)

__all__ = ["BAR_NAMES", "CIFAR100_C", "LIKE_JITTER", "NAMES", "SEVERITIES", "STANDARD", "UNLIKE_JITTER", "corrupt"]
