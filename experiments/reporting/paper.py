"""What the paper prints, to stand beside what we measure. Brier is its own, sum(p²) − 2 p_y: ours minus 1."""

from collections.abc import Mapping

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
