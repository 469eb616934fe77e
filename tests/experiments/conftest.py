from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from experiments.data.datasets import SAMPLE, ImageSet, load_sample
from experiments.evaluation.measuring import CorruptedSets
from experiments.reporting.tables import make_tables
from experiments.reporting.tables.markdown import markdown
from tests.experiments.reporting.synthetic import write_all
from tests.experiments.sample import CORRUPTIONS, SEVERITIES, sample_data


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


@pytest.fixture(scope="module")
def sets() -> CorruptedSets:
    return CorruptedSets(sample_data().test, CORRUPTIONS, SEVERITIES)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented ones, for reading: who changes some copies them first."""
    return write_all(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def tables(results: Path) -> dict[str, str]:
    return {name: markdown(table) for name, table in make_tables(results)[1].items()}
