"""The paper's experiments as data: which networks are trained on what, and what they are measured on.

Each states its command, what it costs and what to expect; the pages in `results/` have all numbers. Costs are for one H200
and, but for smoke, estimated from the training time of one network alone (200 epochs of 45,000 images): VGG16 129 s, ResNet18
203 s, WRN-28-10 772 s, VGG19 137 s and ResNet50 501 s. To fit all methods of one network takes about 50 s, to measure them on
96 test sets about a minute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from experiments.data.corruptions import BAR_NAMES, NAMES, SEVERITIES
from experiments.data.datasets import LARGE, TINY_IMAGENET
from experiments.data.natural import SYNSETS
from experiments.training import hyperparameters
from experiments.training.hyperparameters import Hyperparameters, choose_hyperparameters
from experiments.training.networks import build_network
from experiments.training.released import PROBE_IMAGES

CIFAR_NETWORKS = ("vgg16", "vgg19", "resnet18", "resnet50", "wide_resnet_28_10")
STRONG_NETWORKS = (
    "resnet18", "vgg16", "resnet50", "mobilenet", "convnet_group_norm", "small_vit", "wide_resnet_28_10",
)  # fmt: skip
"""Architectures before seeds: batch norm and group norm, convolutions and attention, plain, residual and depthwise."""
CIFAR_SETS = ("cifar10", "cifar100")
FIVE_SEEDS = (0, 1, 2, 3, 4)
AGAIN = "again"
"""The recipe that trains a network a second time."""
STRONG, STRONG_WIDE, STRONG_VIT = "strong", "strong_wide", "strong_vit"
"""The recipes whose networks are trained as people train them, not as the paper does."""
PUBLIC = "public"
"""The recipe whose networks others have trained and released."""
OWN_TRAINING = (AGAIN, STRONG, STRONG_WIDE, STRONG_VIT, PUBLIC)
"""The recipes that share no trained network with others."""
READ_ONCE = (
    "network", "temperature", "temperature_brier", "temperature_jittered_holdout", "temperature_robust_holdout",
    "vector_scaling", "svs", "sms", "sms_robust_holdout", "dirichlet", "ets", "isotonic", "spline", "parameterised",
    "head_refitted_none", "head_refitted_shift", "head_refitted_jitter", "head_refitted_robust", "head_refitted_robust_holdout",
    "last_layer_grid", "best_layer", "lates_none_1", "lates_shift_1", "lates_jitter_1", "lates_robust_1", "lates_robust_5",
    "lates_robust_brier", "lates_robust_holdout", "lates_robust_sms", "lates_last", "lates_capped_rescaled",
)  # fmt: skip
"""Methods that read a test image once, and so fit a CPU."""
ALL_RIVALS = (
    *READ_ONCE, "density_nearest", "density_kth", "density_nearest_ets", "density_kth_ets", "tta_mirror",
)  # fmt: skip
"""Besides, those that read it several times or search among training images."""
ENSEMBLE = "_ensemble"
"""Ends the name under which the ensembles of a recipe's seeds are filed."""


@dataclass(frozen=True)
class Cell:
    """One trained network, and for which recipe it is evaluated."""

    recipe: str
    dataset: str
    network: str
    seed: int
    train_fraction: float = 0.9
    holdout_fraction: float = 0.1
    dropout: float = 0.0

    @property
    def name(self) -> str:
        """For files; what has its default value is left out."""
        return f"{self.recipe}-{self.trained_alike}"

    @property
    def training(self) -> str:
        """The name of the trained network, which several recipes of the paper's training may share."""
        return self.name if self.recipe in OWN_TRAINING else self.trained_alike

    @property
    def trained_alike(self) -> str:
        """The same for all cells whose networks are trained in the same way from the same seed."""
        name = f"{self.dataset}-{self.network}-s{self.seed}"
        parts = (("t", "train_fraction"), ("h", "holdout_fraction"), ("d", "dropout"))
        values = ((letter, getattr(self, field), getattr(Cell, field)) for letter, field in parts)
        return name + "".join(f"-{letter}{value:g}" for letter, value, usual in values if value != usual)

    def build_network(self, classes: int) -> nn.Module:
        """With its first weights, drawn from the seed."""
        with torch.random.fork_rng([]):
            torch.manual_seed(self.seed)
            return build_network(self.network, classes, dropout=self.dropout, large_images=self.dataset in LARGE)


def ensemble_cell(recipe: str, dataset: str, network: str) -> Cell:
    """Of all seeds; where results need one, it is 0."""
    return Cell(recipe + ENSEMBLE, dataset, network, 0)


@dataclass(frozen=True)
class Recipe:
    """A grid of cells.

    fractions     (train, hold-out) shares of the training split
    training      instead of the paper's recipe for the data set
    probe_images  data set -> probes, and their weights, learn from at most this many images of each class; otherwise from all
    released      `network/dataset` -> SHA-256 of the weights that others released, which take the place of training: a file
                  `released.th` in the cell's folder of `runs`. Hold-out and test set are then halves of the test images; of
                  the grid, these cells alone exist
    natural       data set -> class -> synsets of Tiny-ImageNet whose images are one more test set
    methods       those compared; None: all
    per_class     also under corruption the metrics that take a pass for each class, such as the AUC: most of the time of all
    cost          of the whole grid, in words; `expected`, the numbers that it should show
    """

    name: str
    question: str
    networks: tuple[str, ...]
    datasets: tuple[str, ...]
    cost: str
    expected: str
    seeds: tuple[int, ...] = FIVE_SEEDS
    fractions: tuple[tuple[float, float], ...] = ((0.9, 0.1),)
    dropouts: tuple[float, ...] = (0.0,)
    training: Hyperparameters | None = None
    corruptions: tuple[str, ...] = NAMES
    severities: tuple[int, ...] = SEVERITIES
    probe_images: Mapping[str, int] = field(default_factory=dict)
    released: Mapping[str, str] = field(default_factory=dict)
    natural: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    methods: tuple[str, ...] | None = None
    per_class: bool = True

    @property
    def command(self) -> str:
        return f"python -m experiments run {self.name}"

    def cells(self, seeds: Sequence[int] | None = None) -> list[Cell]:
        """Seed by seed, so that the whole grid is there once before it is there twice; of a seed, rate by rate of dropout."""
        return [
            Cell(self.name, dataset, network, seed, train, holdout, dropout)
            for seed in (self.seeds if seeds is None else seeds)
            for dropout in self.dropouts
            for dataset in self.datasets
            for network in self.networks
            for train, holdout in self.fractions
            if not self.released or f"{network}/{dataset}" in self.released
        ]

    def training_of(self, cell: Cell) -> Hyperparameters:
        return self.training or choose_hyperparameters(cell.dataset, dropout=cell.dropout)


_STRONG = Recipe(
    name=STRONG,
    question="And on networks as people train them: crops, more weight decay, Nesterov's momentum? Architectures before "
    "seeds, all rivals beside LATES. The comparison named beforehand is on these networks.",
    networks=tuple(network for network in STRONG_NETWORKS if network not in ("small_vit", "wide_resnet_28_10")),
    datasets=CIFAR_SETS,
    seeds=(0, 1, 2),
    training=hyperparameters.STRONG,
    corruptions=(*NAMES, *BAR_NAMES),
    severities=(1, 3, 5),
    methods=ALL_RIVALS,
    per_class=False,
    cost="30 cells: 3 to 11 minutes of training each, several side by side, one to fit all methods and three to measure "
    "them; ResNet50 and MobileNet not yet measured",
    expected="Seed 0, temperature scaling against LATES with its defaults, clean NLL, then corrupted: CIFAR-100, ResNet18 "
    "(accuracy .769) .914 -> .841, 2.427 -> 2.060; VGG16 (.734) 1.068 -> .941, 2.484 -> 2.043; the group-norm ConvNet "
    "(.712) 1.127 -> 1.023, 2.113 -> 1.790. CIFAR-10, ResNet18 (.948) .177 -> .167, 1.006 -> .772. See results/clean.md.",
)
_RECIPES = (
    Recipe(
        name="in_distribution",
        question="Does LATES beat temperature scaling on the test set?",
        networks=CIFAR_NETWORKS,
        datasets=CIFAR_SETS,
        corruptions=(),
        cost="50 cells: about 5 hours of training, and a minute each to fit all methods",
        expected="LATES with shifted views against temperature scaling: a lower NLL on every network, for instance ResNet18 on "
        "CIFAR-100 1.336 -> 1.163 and on CIFAR-10 .312 -> .291, means of three seeds. See results/clean.md.",
    ),
    Recipe(
        name="out_of_distribution",
        question="And under shift: 19 corruptions at five severities, beside the test set itself? The same networks, "
        "measured on all 96 sets; tables then take the clean scores from here too.",
        networks=CIFAR_NETWORKS,
        datasets=CIFAR_SETS,
        cost="50 cells: the training of in_distribution, which they share, and two minutes each",
        expected="LATES with jittered views against temperature scaling: a lower NLL and ECE on every network, for instance "
        "ResNet18 on CIFAR-100 2.335 -> 2.067 and .098 -> .074, means over corruptions and three seeds. See "
        "results/corrupted.md.",
    ),
    Recipe(
        name="low_data",
        question="Does LATES gain more where the network saw less: 25, 50, 90 % of the training split?",
        networks=CIFAR_NETWORKS,
        datasets=CIFAR_SETS,
        fractions=((0.25, 0.1), (0.5, 0.1), (0.9, 0.1)),
        corruptions=(),
        cost="150 cells, of which 50 share their network with in_distribution: about 4 hours of training more",
        expected="LATES with shifted views against temperature scaling, ResNet18 on CIFAR-100, seed 0: NLL 2.414 -> 2.152 at "
        "25 %, 1.938 -> 1.596 at 50 %, 1.294 -> 1.139 at 90 %. See results/less-data.md.",
    ),
    Recipe(
        name="holdout_size",
        question="How many hold-out images do the weights need? The network is trained on all others.",
        networks=CIFAR_NETWORKS,
        datasets=CIFAR_SETS,
        fractions=((0.98, 0.02), (0.96, 0.04), (0.94, 0.06), (0.92, 0.08), (0.9, 0.1)),
        corruptions=(),
        cost="250 cells, of which 50 share their network with in_distribution: about 20 hours of training more",
        expected="LATES with shifted views against temperature scaling, ResNet18 on CIFAR-100, seed 0: NLL 1.267 -> 1.121 at "
        "2 %, 1.294 -> 1.139 at 10 %. See results/less-data.md.",
    ),
    Recipe(
        name="mc_dropout",
        question="Does LATES help MC dropout, and does it help more than temperature scaling, which the paper leaves out?",
        networks=("wide_resnet_28_10",),
        datasets=CIFAR_SETS,
        dropouts=(0.2, 0.1),
        corruptions=(),
        cost="20 cells: about 13 minutes of training each, and one to fit and measure; only the clean test set",
        expected="MC dropout alone, with temperature scaling, with LATES without views, seed 0, rate 0.2: NLL .163, .148, .139 "
        "on CIFAR-10; .833, .825, .741 on CIFAR-100. See results/mc-dropout.md, which has the paper's numbers too.",
    ),
    Recipe(
        name=AGAIN,
        question="How much of a number is chance? One network of out_of_distribution trained from scratch once more, in a "
        "folder of its own: the same split, first weights and order of images, on a GPU that does not repeat itself to the "
        "last bit.",
        networks=("vgg16",),
        datasets=("cifar100",),
        seeds=(0,),
        cost="1 cell: about 4 minutes",
        expected="On the clean test set an NLL within .02 of the first run's. See results/statistics.md.",
    ),
    Recipe(
        name="imagenet",
        question="Does it hold at a thousand classes?",
        networks=("resnet50",),
        datasets=("imagenet",),
        probe_images={"imagenet": 50},
        cost="5 cells; training and evaluation not yet measured. Probes and weights learn from 50 images of each class, 12 GB "
        "of features a pass; of all 1.15 million it would be 280",
        expected="Not yet measured. See results/paper.md for the paper's numbers.",
    ),
    Recipe(
        name=TINY_IMAGENET,
        question="And where ImageNet is too dear: two hundred classes, 64 x 64 pixels? ResNet50 with ImageNet's stem and "
        "schedule; the test set is the labelled validation split, corrupted by CIFAR-10-C's constants.",
        networks=("resnet50",),
        datasets=(TINY_IMAGENET,),
        seeds=(0,),
        corruptions=(*NAMES, *BAR_NAMES),
        severities=(1, 3, 5),
        probe_images={TINY_IMAGENET: 150},
        methods=READ_ONCE,
        per_class=False,
        cost="1 cell; not yet measured. Probes learn from 150 images of each class, 7 GB of features a pass",
        expected="Not yet measured.",
    ),
    _STRONG,
    replace(
        _STRONG,
        name=STRONG_VIT,
        question="The same for the small vision transformer, trained by AdamW. The one recorded under strong was trained by "
        "SGD, which left blocks that change nothing.",
        networks=("small_vit",),
        training=hyperparameters.STRONG_VIT,
        cost="6 cells: 8 minutes of training beside five other networks, one to fit all methods and two to measure them",
        expected="Seed 0, temperature scaling against LATES with its defaults, clean NLL, then corrupted: CIFAR-100 (accuracy "
        ".578) 1.758 -> 1.516, 2.710 -> 2.244; CIFAR-10 (.846) .496 -> .458, 1.108 -> .906. See results/clean.md.",
    ),
    replace(
        _STRONG,
        name=STRONG_WIDE,
        question="WRN-28-10 by Uncertainty Baselines' deterministic recipe, on 90 % of the training split, to stand beside "
        "its table.",
        networks=("wide_resnet_28_10",),
        training=hyperparameters.STRONG_WIDE,
        methods=READ_ONCE,
        cost="6 cells; about 13 minutes of training each, and fitting all rivals, which was never timed",
        expected="Not yet measured. Published, on the whole training split, clean test set: accuracy .960 on CIFAR-10, .798 on "
        "CIFAR-100.",
    ),
    Recipe(
        name=PUBLIC,
        question="On networks that others have trained with crops and released: do the gains hold? Small ResNets for "
        "CIFAR-10 and DenseNet-BC-100 for both data sets, which saw all training images: the weights are fitted on one half of "
        "the test images and measured on the other. ResNet20 and ResNet44 chose the defaults; these took no part. Of the "
        "severities the middle one, which a CPU can do. And under natural shift, on photographs of the same classes from "
        "Tiny-ImageNet?",
        networks=("resnet32", "resnet56", "densenet_100"),
        datasets=CIFAR_SETS,
        seeds=(0,),
        fractions=((1.0, 0.0),),
        corruptions=(*NAMES, *BAR_NAMES),
        severities=(3,),
        probe_images=PROBE_IMAGES,
        released={
            "resnet32/cifar10": "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850",
            "resnet56/cifar10": "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
            "densenet_100/cifar10": "deaefd082911a1c6c92aacdcfecf03c71b932acc5c08b779c85c44eccdc0c817",
            "densenet_100/cifar100": "56cbe261c2612976e11aedcbd60ba00766e8c01c78f96c3f18ff561ead804d47",
        },
        natural=SYNSETS,
        methods=READ_ONCE,
        cost="4 cells: 15 to 30 minutes each on a CPU; nothing is trained",
        expected="Accuracies of the networks as they are on all 10,000 test images: ResNet32 .9263, ResNet56 .9339. "
        "Temperature scaling, then LATES with robust views: ResNet32 clean NLL .234 -> .229, corrupted .976 -> .869; ResNet56 "
        ".203 -> .197, .923 -> .762. Under natural shift, expecting shift: 1.094 -> .964 and 1.124 -> .958. "
        "DenseNet-BC-100 with the defaults: CIFAR-10 .174 -> .172, .999 -> .902, natural shift .971 -> .927; CIFAR-100 .873 -> "
        ".867, 2.587 -> 2.507, 3.727 -> 3.617.",
    ),
    Recipe(
        name="smoke",
        question="Does everything run? Tiny networks on 600 real CIFAR-10 images; the numbers mean nothing.",
        networks=("tiny_vgg", "tiny_resnet"),
        datasets=("cifar10_600",),
        seeds=(0, 1),
        fractions=((0.7, 0.3),),
        training=Hyperparameters(epochs=15, batch=40, rate=0.05, weight_decay=5e-4),
        corruptions=("gaussian_noise", "defocus_blur", "fog", "brightness", "contrast", "jpeg_compression"),
        severities=(1, 3, 5),
        cost="4 cells: some minutes on two cores",
        expected="Accuracies of .2 to .4 on the clean test set.",
    ),
)

RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _RECIPES}
