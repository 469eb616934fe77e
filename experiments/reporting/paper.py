"""What the paper and Uncertainty Baselines print, to stand beside ours. The paper's Brier is sum(p²) − 2 p_y: ours minus 1."""

from collections.abc import Mapping

from experiments.data.corruptions import CIFAR100_C, STANDARD

METRICS = ("ece", "nll", "brier", "accuracy", "auc")
"""The paper's five, in its order."""

DATASETS = ("cifar100", "cifar10", "imagenet")


def _row(ece: str, nll: str, brier: str, accuracy: str, auc: str) -> Mapping[str, str]:
    return dict(zip(METRICS, (ece, nll, brier, accuracy, auc), strict=True))


IMAGENET: Mapping[str, Mapping[str, str]] = {
    "temperature": _row("0.060", "1.156", "−0.629", "0.738", "0.991"),
    "lates_paper": _row("0.023", "1.039", "−0.644", "0.745", "0.991"),
}
"""ResNet50 on ImageNet: method -> metric -> value as printed."""

MC_DROPOUT: Mapping[tuple[str, float], Mapping[str, Mapping[str, str]]] = {
    ("cifar10", 0.1): {
        "MC dropout": _row("0.023", "0.160", "−0.932", "0.958", "0.995"),
        "+ LATES": _row("0.010", "0.144", "−0.935", "0.957", "0.997"),
    },
    ("cifar10", 0.2): {
        "MC dropout": _row("0.019", "0.151", "−0.929", "0.954", "0.996"),
        "+ LATES": _row("0.0045", "0.144", "−0.930", "0.953", "0.998"),
    },
    ("cifar100", 0.1): {
        "MC dropout": _row("0.044", "0.754", "−0.717", "0.802", "0.985"),
        "+ LATES": _row("0.033", "0.751", "−0.719", "0.802", "0.988"),
    },
    ("cifar100", 0.2): {
        "MC dropout": _row("0.035", "0.709", "−0.718", "0.798", "0.988"),
        "+ LATES": _row("0.016", "0.716", "−0.716", "0.794", "0.991"),
    },
}
"""WRN-28-10 with Monte Carlo dropout: (data set, rate) -> method in words -> metric -> value as printed."""

WILCOXON: Mapping[str, Mapping[str, str]] = {
    "cifar100": _row(*["< 1e-9"] * 5),
    "cifar10": _row(*["< 1e-9"] * 5),
    "imagenet": _row("< 1e-9", "< 1e-9", "< 1e-9", "0.18", "< 1e-9"),
}
"""p of the signed rank test, data set -> metric."""


ANOVA: Mapping[str, Mapping[str, str]] = {
    "cifar100": _row("2.31", "63.4", "25.6", "108.7", "29.1"),
    "cifar10": _row("70.5", "39.5", "38.8", "7.72", "22.6"),
    "imagenet": _row("62.8", "84.6", "41.52", "< 1", "56.6"),
}
"""F(1, 16), which means 17 corruption types; and p."""
ANOVA_P: Mapping[str, Mapping[str, str]] = {
    "cifar100": _row("0.148", "< .001", "< .001", ".001", "< .001"),
    "cifar10": _row("< .001", "< .001", "< .001", ".013", "< .001"),
    "imagenet": _row(".001", "< .001", "< .001", ".57", "< .001"),
}

COST: Mapping[str, str] = {"parameters": "≤ 1 %", "flops": "< 0.7 %", "seconds": "< 25 %"}
"""What LATES adds, as a share of the network's parameters, inference FLOPs and training time."""


# Uncertainty Baselines


BASELINE_METRICS = ("nll", "accuracy", "ece")
BASELINES: Mapping[str, Mapping[str, str]] = {
    "cifar100": {
        "deterministic": "0.875 0.798 0.086 2.70 0.514 0.239",
        "SNGP": "0.805 0.802 0.020 2.02 0.546 0.092",
        "MC dropout, 30 samples": "0.637 0.821 0.028 1.93 0.572 0.098",
        "ensemble of 4": "0.666 0.827 0.021 2.27 0.541 0.138",
        "SNGP, ensemble of 4": "0.665 0.819 0.011 1.95 0.568 0.091",
        "SNGP, trained with AugMix": "0.755 0.806 0.024 1.44 0.659 0.054",
    },
    "cifar10": {
        "deterministic": "0.159 0.960 0.023 1.05 0.761 0.153",
        "SNGP": "0.134 0.960 0.007 0.74 0.785 0.078",
        "MC dropout, 30 samples": "0.116 0.962 0.005 0.69 0.796 0.068",
        "ensemble of 4": "0.114 0.966 0.010 0.81 0.779 0.087",
        "SNGP, ensemble of 4": "0.109 0.967 0.005 0.72 0.792 0.074",
        "SNGP, trained with AugMix": "0.103 0.969 0.0045 0.33 0.891 0.015",
    },
}
"""WRN-28-10: data set -> method in words -> these metrics clean, then over `BASELINE_TYPES` at five severities."""
BASELINE_TYPES: Mapping[str, tuple[str, ...]] = {"cifar100": CIFAR100_C, "cifar10": STANDARD}
