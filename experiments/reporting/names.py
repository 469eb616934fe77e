"""Names of metrics, data sets, networks and methods, and which methods are shown together."""

from collections.abc import Mapping

LARGER_IS_BETTER = frozenset({"accuracy", "auc", "auc_keras", "auc_best_temperature"})

METRIC_TITLES: Mapping[str, str] = {
    "ece": "ECE",
    "ece_floor": "floor",
    "nll": "NLL",
    "brier": "Brier",
    "brier_paper": "Brier (paper's)",
    "accuracy": "accuracy",
    "auc": "AUC",
    "auc_keras": "AUC (Keras)",
    "auc_best_temperature": "AUC at best T",
    "classwise_ece": "classwise ECE",
    "aurc": "AURC",
}
DATASET_TITLES: Mapping[str, str] = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10", "imagenet": "ImageNet"}
NETWORK_TITLES: Mapping[str, str] = {
    "vgg16": "VGG16",
    "vgg19": "VGG19",
    "resnet18": "ResNet18",
    "resnet50": "ResNet50",
    "wide_resnet_28_10": "WRN-28-10",
}
METHOD_TITLES: Mapping[str, str] = {
    "network": "network as it is",
    "temperature": "temperature",
    "temperature_sgd": "temperature, SGD in beta",
    "temperature_tau_sgd": "temperature, SGD in tau",
    "temperature_brier": "temperature, fitted to Brier",
    "temperature_jittered_holdout": "temperature, jittered hold-out",
    "temperature_both_holdouts": "temperature, hold-out plain and jittered",
    "vector_scaling": "vector scaling",
    "head_refitted_shift": "head refitted on shifted views",
    "head_refitted_jitter": "head refitted on jittered views",
    "head_refitted_both_holdouts": "head refitted on jittered views, hold-out plain and jittered",
    "lates_paper": "LATES, paper mode (SGD)",
    "lates_none_1": "LATES, no views",
    "lates_shift_1": "LATES, shifted views",
    "lates_jitter_1": "LATES, jittered views",
    "lates_jittered_holdout": "LATES, jittered hold-out",
    "lates_both_holdouts": "LATES, hold-out plain and jittered",
    "lates_last_block": "LATES, last block probed too",
    "mcd": "MC dropout",
    "mcd_temperature": "+ temperature",
    "mcd_lates": "+ LATES, no views",
    "mcd_lates_shift": "+ LATES, shifted views",
}
HEADLINE = ("temperature", "lates_paper", "lates_none_1", "lates_shift_1", "lates_jitter_1")
"""What every figure shows. The paper's own method is `lates_paper`; ours are solved exactly, within 1 % of the parameters."""
RIVALS: Mapping[str, str] = {"lates_paper": "temperature_sgd"}
"""Over what a gain is one, where that is not exact temperature scaling: both sides are solved in the same way."""
VIEWS = ("none", "shift", "jitter")
BUDGETS = ("0.5", "1", "2", "5", "all")


def method_title(method: str) -> str:
    """In words; budgets other than 1 % are spelt out."""
    if method in METHOD_TITLES:
        return METHOD_TITLES[method]
    stem, _, budget = method.rpartition("_")
    if f"{stem}_1" in METHOD_TITLES and budget in BUDGETS:
        return f"{METHOD_TITLES[f'{stem}_1']}, " + ("no budget" if budget == "all" else f"{budget} %")
    return method
