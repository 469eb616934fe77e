from collections.abc import Iterator

import pytest
import torch

from experiments.data import SAMPLE, ImageSet, load_sample


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Networks this small only lose by sharing a step among threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def images() -> ImageSet:
    """The 400 real images of the sample that are for training."""
    return load_sample(SAMPLE)[0]
