"""torch.compile with inductor, the whole graph: what the calibrated model computes must not change.

The networks are small and untrained: compiling takes the time, and what is computed matters only in that it is the same.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

import lates
from tests.conftest import Residual, draw_patterns

pytestmark = pytest.mark.slow

IMAGES, LABELS = draw_patterns(500, 10, seed=20)
TRAIN, HOLDOUT = [(IMAGES[:300], LABELS[:300])], [(IMAGES[300:], LABELS[300:])]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


def network(seed: int = 0) -> nn.Module:
    """Blocks "0" and "1", the second the head's."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(
            Residual(3, 4, 1), Residual(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
        ).eval()


def calibrate(model: nn.Module | list[nn.Module], **choices: object) -> lates.CalibratedModel:
    given = {"train": TRAIN, "holdout": HOLDOUT, "views": None, "budget": None, "progress": False, **choices}
    return lates.calibrate(model, **given)  # pyright: ignore[reportArgumentType]


def assert_compiles(calibrated: lates.CalibratedModel, rows: Tensor, atol: float = 1e-4, dynamic: bool = False) -> None:
    compiled = torch.compile(calibrated, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for part in (rows[:32], rows[32:75]) if dynamic else (rows[:32], rows[32:64]):
            torch.testing.assert_close(compiled(part), calibrated(part), atol=atol, rtol=1e-3)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "any number of rows"])
def test_a_dense_probe(dynamic: bool) -> None:
    calibrated = calibrate(network())
    assert calibrated.member_names == ["0", "head"]
    assert_compiles(calibrated, IMAGES, dynamic=dynamic)


def test_a_probe_of_low_rank() -> None:
    calibrated = calibrate(network(), budget=0.1)
    assert [name.split(".")[-1] for name, _ in calibrated.named_parameters() if ".probes." in name] == [
        "down",
        "up",
        "bias",
    ]
    assert_compiles(calibrated, IMAGES)


def test_one_member() -> None:
    assert_compiles(calibrate(network(), blocks=[]), IMAGES)


def test_the_paper_s_pooling() -> None:
    assert_compiles(calibrate(network(), budget=0.5, settings=lates.PAPER), IMAGES)


def test_an_ensemble() -> None:
    assert_compiles(calibrate([network(0), network(1)]), IMAGES)


def test_one_logit() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    rows = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    labels = (rows[:, 0] * rows[:, 1] > 0).long()
    calibrated = calibrate(model, train=[(rows[:100], labels[:100])], holdout=[(rows[100:], labels[100:])])
    assert_compiles(calibrated, rows)


def test_under_autocast() -> None:
    calibrated = calibrate(network())
    with torch.autocast("cpu", torch.bfloat16):
        assert_compiles(calibrated, IMAGES, atol=0.1)


def test_a_compiled_network_is_calibrated_as_it_is() -> None:
    model = network()
    compiled = torch.compile(copy.deepcopy(model))
    assert isinstance(compiled, nn.Module)
    assert calibrate(compiled).weights == calibrate(model).weights


def test_after_a_move() -> None:
    assert_compiles(calibrate(network()).to(torch.float64), IMAGES.double())
