"""Trained weights that others have released: a state dict in a file, by whatever names its modules had.

Such a network saw all training images, so hold-out and report divide the test images.
"""

import hashlib
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from experiments.data.datasets import ImageSet
from experiments.data.splits import divide
from experiments.training.checkpoints import check_shapes
from experiments.training.networks import DenseNet, ResNet

RELEASED = "released.th"
"""The file of the weights in the folder of a run."""
PROBE_IMAGES: Mapping[str, int] = {"cifar10": 2000, "cifar100": 200}
"""Data set -> number of training images of each class from which the probes learn."""
EVERYWHERE = ((r"^module\.", ""), (r"^(linear|fc)\.", "head."))
OUR_NAMES: Mapping[type[nn.Module], tuple[tuple[str, str], ...]] = {
    ResNet: ((r"^conv1\.", "stem.0."), (r"^bn1\.", "stem.1.")),
    DenseNet: (
        (r"^conv1\.", "stem."),
        (r"^(block\d)\.layer\.", r"\1."),
        (r"^trans(\d)\.bn1\.", r"transition\1.0."),
        (r"^trans(\d)\.conv1\.", r"transition\1.2."),
        (r"^bn1\.", "bn."),
    ),
}
"""Kind of network -> patterns of the names that such files use and what they become, one after the other."""


def divide_test(test: ImageSet) -> tuple[ImageSet, ImageSet, str]:
    """The half of the test images that is the hold-out, the half that is reported on, and the digest of the division."""
    reported, holdout, digest = divide(test, 0.5, 0.5, seed=0)
    return holdout, reported, digest


def load_released(network: nn.Module, path: Path, expected: str | None = None) -> str:
    """Put the weights into the network; the digest of the file, which may be known. Only tensors are read, no code."""
    if not path.is_file():
        raise ValueError(f"There is no {path}. Put the released weights there.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if expected not in (None, digest):
        raise ValueError(f"{path} holds other weights: its SHA-256 is {digest}, expected {expected}.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        patterns = (*EVERYWHERE, *OUR_NAMES[type(network)])
        found = {_our_name(name, patterns): values for name, values in content.get("state_dict", content).items()}
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} holds no state dict that torch.save wrote: {str(error).splitlines()[0]}") from error
    counters = {name: values for name, values in network.state_dict().items() if name.endswith("num_batches_tracked")}
    stored: dict[str, Tensor] = {**counters, **found}  # files older than the counters lack them, and nothing reads them
    check_shapes(stored, network.state_dict(), path)
    network.load_state_dict(stored)
    return digest


def _our_name(name: str, patterns: Sequence[tuple[str, str]]) -> str:
    for pattern, ours in patterns:
        name = re.sub(pattern, ours, name)
    return name
