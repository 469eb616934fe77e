"""Names of metrics, data sets, networks and methods, and which methods are shown together."""

from collections.abc import Mapping

from experiments.evaluation.methods import BUDGETS

CIFAR = ("cifar100", "cifar10")
"""The data sets in the order of the tables."""
LARGER_IS_BETTER = frozenset({"accuracy", "auc", "auc_keras", "auc_best_temperature"})


def sign(metric: str) -> int:
    """What turns ours minus theirs into a gain: positive is better."""
    return 1 if metric in LARGER_IS_BETTER else -1


METRIC_TITLES: Mapping[str, str] = {
    "ece": "ECE",
    "ece_floor": "floor",
    "ece_smooth": "smooth ECE",
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
DATASET_TITLES: Mapping[str, str] = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet",
    "tiny_imagenet": "Tiny-ImageNet",
}
TRAINING_TITLES: Mapping[str, str] = {
    "paper": "paper's recipe",
    "strong": "strong recipe",
    "public": "public networks (crops)",
}
NETWORK_TITLES: Mapping[str, str] = {
    "vgg16": "VGG16",
    "vgg19": "VGG19",
    "resnet18": "ResNet18",
    "resnet50": "ResNet50",
    "wide_resnet_28_10": "WRN-28-10",
    "mobilenet": "MobileNetV2",
    "convnet_group_norm": "group-norm ConvNet",
    "small_vit": "small ViT",
    "resnet32": "ResNet32",
    "resnet56": "ResNet56",
    "densenet_100": "DenseNet-BC-100",
}
LOGIT_RIVALS: Mapping[str, str] = {
    "temperature_brier": "temperature, fitted to Brier",
    "vector_scaling": "vector scaling",
    "svs": "structured vector scaling",
    "sms": "structured matrix scaling",
    "dirichlet": "Dirichlet, off-diagonal penalty",
    "ets": "ensemble temperature scaling",
    "isotonic": "isotonic, all classes",
    "spline": "spline on the top label",
    "parameterised": "parameterised temperature",
}
"""What needs the logits of the hold-out and nothing else."""
VIEW_RIVALS: Mapping[str, str] = {
    "temperature_jittered_holdout": "temperature, jittered hold-out",
    "temperature_both_holdouts": "temperature, hold-out plain and jittered",
    "temperature_robust_holdout": "temperature, robust hold-out",
    "sms_robust_holdout": "structured matrix scaling, robust hold-out",
    "head_refitted_none": "last layer refitted, no views",
    "head_refitted_shift": "last layer refitted on shifted views",
    "head_refitted_jitter": "last layer refitted on jittered views",
    "head_refitted_robust": "last layer refitted on robust views",
    "head_refitted_both_holdouts": "last layer refitted on jittered views, hold-out plain and jittered",
    "head_refitted_robust_holdout": "last layer refitted on robust views, robust hold-out",
    "last_layer_grid": "last layer with a 2 x 2 grid, robust views",
    "best_layer": "best single layer, robust views",
    "density_nearest": "density-aware, nearest neighbour",
    "density_kth": "density-aware, k-th neighbour",
    "density_nearest_ets": "density-aware, nearest neighbour, then ETS",
    "density_kth_ets": "density-aware, k-th neighbour, then ETS",
}
"""What sees views, features or training images too."""
EXPENSIVE: Mapping[str, str] = {"tta_mirror": "test-time augmentation, 2 passes", "ensemble": "ensemble of the seeds"}
RIVALS: Mapping[str, str] = {"temperature": "temperature", **LOGIT_RIVALS, **VIEW_RIVALS, **EXPENSIVE}
"""Every method that is not LATES and is solved to its optimum."""
LATES: Mapping[str, str] = {
    "lates_paper": "LATES, the paper's words taken literally",
    "lates_none_1": "LATES, no views",
    "lates_shift_1": "LATES, shifted views",
    "lates_jitter_1": "LATES, jittered views",
    "lates_robust_1": "LATES, robust views",
    "lates_robust_5": "LATES, robust views, budget=0.05",
    "lates_robust_brier": "LATES, robust views, to Brier",
    "lates_jittered_holdout": "LATES, jittered views and hold-out",
    "lates_both_holdouts": "LATES, jittered views, hold-out plain and jittered",
    "lates_robust_holdout": 'LATES, holdout_views="robust"',
    "lates_capped_rescaled": "LATES, expect_shift=True",
    "lates_last": "LATES (default)",
    "lates_last_block": "LATES, shifted views, last block probed",
    "lates_robust_sms": "LATES, robust views, then structured matrix scaling",
}
METHOD_TITLES: Mapping[str, str] = {
    "network": "network as it is",
    **RIVALS,
    "temperature_sgd": "temperature, SGD in beta",
    "temperature_tau_sgd": "temperature, SGD in tau",
    **LATES,
    "mcd": "MC dropout",
    "mcd_temperature": "+ temperature",
    "mcd_lates": "+ LATES, no views",
    "mcd_lates_shift": "+ LATES, shifted views",
}
_TITLES = {**METRIC_TITLES, **DATASET_TITLES, **TRAINING_TITLES, **NETWORK_TITLES, **METHOD_TITLES}
DEFAULT, EXPECT_SHIFT = "lates_last", "lates_capped_rescaled"
PRIMARY_RIVAL = "sms"
"""Named before it was run, to be compared with the default on networks of the strong recipe."""


def in_words(name: str) -> str:
    """The title of a metric, data set, network, way of training or method; budgets other than 1 % are spelt out."""
    if name in _TITLES:
        return _TITLES[name]
    stem, _, budget = name.rpartition("_")
    if f"{stem}_1" in METHOD_TITLES and budget in BUDGETS:
        return f"{METHOD_TITLES[f'{stem}_1']}, " + ("no budget" if budget == "all" else f"{budget} %")
    return name
