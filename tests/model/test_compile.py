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
def test_compiled_model_gives_the_same_logits(dynamic: bool) -> None:
    calibrated = calibrate(network())
    assert calibrated.member_names == ["0", "1", "head"]
    assert_compiles(calibrated, IMAGES, dynamic=dynamic)


@pytest.mark.parametrize(
    "choices",
    [{"budget": 0.1}, {"blocks": []}, {"budget": 0.5, "settings": lates.PAPER}],
    ids=["rank", "head", "paper"],
)
def test_compiled_probes_of_every_form_give_the_same_logits(choices: dict[str, object]) -> None:
    assert_compiles(calibrate(network(), **choices), IMAGES)


def test_compiled_ensemble_and_cast_model_give_the_same_logits() -> None:
    assert_compiles(calibrate([network(0), network(1)]), IMAGES)
    assert_compiles(calibrate(network()).to(torch.float64), IMAGES.double())


def test_under_autocast() -> None:
    calibrated = calibrate(network())
    with torch.autocast("cpu", torch.bfloat16):
        assert_compiles(calibrated, IMAGES, atol=0.1)


def test_a_compiled_network_is_calibrated_as_it_is() -> None:
    model = network()
    compiled = torch.compile(copy.deepcopy(model))
    assert isinstance(compiled, nn.Module)
    assert calibrate(compiled).weights == calibrate(model).weights
