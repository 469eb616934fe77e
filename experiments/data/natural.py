"""Natural shift: photographs from another source of what CIFAR's classes are, as in CINIC-10.

They are training images of Tiny-ImageNet, 64 x 64 pixels, reduced to 32 x 32 by averaging areas: `IMAGES` of a class, spread
evenly over its synsets, the first of each by name. Networks still choose among all classes, also those that have no images
here: of CIFAR-10 airplane, deer and horse, of CIFAR-100 seventy-two.

A synset counts if WordNet 3.0 has it below the synset that stands for the class, which may be itself. For CIFAR-10 these are
car n02958343, bird n01503061, domestic cat n02121808, dog n02084071, frog n01639765, vessel n04530566, truck n04490091. For
CIFAR-100 they are those that have the class's name among their words, in its sense there (mushroom and orange are food). Left
out, being doubtful:

- CIFAR-10: police van (below truck, but CIFAR-10 has "only big trucks"), gondola (a vessel, but rowed), go-kart (no car in
  WordNet), cougar (below cat, not below domestic cat); school bus, trolleybus, tractor, freight car, bullet train and
  jinrikisha (vehicles of no class);
- CIFAR-100: koala (below possum), candle (below lamp), desk (below table), water jug (below bottle), water tower (a tank, but
  for water), plate (a dish of food).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from experiments.data.datasets import FolderSet

IMAGES = 500
"""Of each class; a few less where its synsets do not divide them."""
SYNSETS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "cifar10": {
        "automobile": ("n02814533", "n03100240", "n03670208", "n04285008"),  # beach wagon, convertible, limousine, sports car
        "bird": ("n01855672", "n02002724", "n02056570", "n02058221"),  # goose, black stork, king penguin, albatross
        "cat": ("n02123045", "n02123394", "n02124075"),  # tabby, Persian cat, Egyptian cat
        "dog": (  # Chihuahua, Yorkshire terrier, golden and Labrador retriever, German shepherd, standard poodle
            "n02085620", "n02094433", "n02099601", "n02099712", "n02106662", "n02113799",
        ),
        "frog": ("n01641577", "n01644900"),  # bullfrog, tailed frog
        "ship": ("n03662601",),  # lifeboat
        "truck": ("n03796401",),  # moving van
    },
    "cifar100": {
        "bear": ("n02132136",),  # brown bear
        "bee": ("n02206856",),
        "beetle": ("n02165456",),  # ladybug
        "bottle": ("n02823428", "n03937543", "n03983396"),  # beer, pill and pop bottle
        "bridge": ("n04311004", "n04366367", "n04532670"),  # steel arch bridge, suspension bridge, viaduct
        "bus": ("n04146614", "n04487081"),  # school bus, trolleybus
        "butterfly": ("n02279972", "n02281406"),  # monarch, sulphur butterfly
        "camel": ("n02437312",),  # Arabian camel
        "cattle": ("n02403003",),  # ox
        "chair": ("n04099969",),  # rocking chair
        "chimpanzee": ("n02481823",),
        "cockroach": ("n02233338",),
        "elephant": ("n02504458",),  # African elephant
        "keyboard": ("n03085013",),  # computer keyboard
        "lawn_mower": ("n03649909",),
        "lion": ("n02129165",),
        "lobster": ("n01983481", "n01984695"),  # American lobster, spiny lobster
        "mountain": ("n09193705",),  # alp
        "mushroom": ("n07734744",),
        "orange": ("n07747607",),
        "snail": ("n01944390",),
        "snake": ("n01742172",),  # boa constrictor
        "spider": ("n01774384", "n01774750"),  # black widow, tarantula
        "sweet_pepper": ("n07720875",),  # bell pepper
        "table": ("n03201208",),  # dining table
        "telephone": ("n03902125",),  # pay-phone
        "tractor": ("n04465501",),
        "train": ("n02917067",),  # bullet train
    },
}  # fmt: skip


def select_natural(tiny_imagenet: FolderSet, synsets: Mapping[str, Sequence[str]], classes: Sequence[str]) -> FolderSet:
    """Of the training images of Tiny-ImageNet those of the `classes` that have `synsets`, 32 x 32 pixels."""
    rows: list[torch.Tensor] = []
    labels: list[int] = []
    for name, below in synsets.items():
        for synset in below:
            of_synset = tiny_imagenet.labels == tiny_imagenet.classes.index(synset)
            rows.append(of_synset.nonzero()[: IMAGES // len(below), 0])
            labels += [classes.index(name)] * len(rows[-1])
    chosen = tiny_imagenet.select(torch.cat(rows))
    return replace(chosen, labels=torch.tensor(labels), classes=tuple(classes), size=32)
