"""Bad input is named, with what was expected and the way out, and leaves the model as it was."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import lates
from tests.conftest import Problem, calibrate, draw_patterns
from tests.networks import CLASSES, Network, draw, fail_after, loader, network, untouched


def broken(part: str, value: float) -> Network:
    model = network()
    model.get_parameter(f"{part}.bias").data[0] = value
    return model


@pytest.mark.parametrize(("value", "fault"), [(torch.nan, "NaN"), (torch.inf, r"\+inf")])
def test_logits_without_a_softmax_are_an_error(value: float, fault: str) -> None:
    model = broken("last", value)
    with untouched(model), pytest.raises(ValueError, match=rf"the network's logits hold {fault} in row 0 \(20 of 20"):
        lates.extract(model, loader())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_blocks_that_put_out_nan_are_named(value: float) -> None:
    with pytest.raises(ValueError, match=r'Block "body\.2" puts out NaN or infinite values\. Leave it out'):
        lates.extract(broken("body.0", value), loader())


def test_labels_that_the_network_has_no_logit_for_are_an_error() -> None:
    images, labels = draw()
    for wrong in (CLASSES, -1):
        with pytest.raises(ValueError, match=rf"labels hold {wrong} in row .*expected 0 to {CLASSES - 1}"):
            lates.extract(network(), [(images, labels.index_fill(0, torch.tensor([4]), wrong))])
    with pytest.raises(ValueError, match=r"labels hold 4 .*expected 0 to 2"):
        lates.calibrate(network(), train=loader(), holdout=[(images, labels + 2)], progress=False)


def test_rows_that_do_not_match_their_labels_are_an_error() -> None:
    images, labels = draw()
    with pytest.raises(ValueError, match="A loader batch has 19 labels, but the network gave 20 rows of logits"):
        lates.extract(network(), [(images, labels), (images, labels[:19])])
    with pytest.raises(ValueError, match="has 20 labels, but the network gave 40 rows"):
        lates.extract(network(), loader(batch_size=20), views=lambda images: images.repeat(2, 1, 1, 1))


def test_dense_outputs_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 3, 1)).eval()
    with untouched(model), pytest.raises(ValueError, match="a prediction per pixel or token"):
        lates.extract(model, loader())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"passes": 0}, ValueError, "passes=0: expected at least 1"),
        ({"views": "blur"}, ValueError, 'Unknown views="blur"'),
        (
            {"blocks": ["layer9"]},
            ValueError,
            r'Unknown block "layer9"\. Blocks of this model: body\.2, body\.5, body\.9',
        ),
        ({"loader": []}, ValueError, "The loader loader yielded no batch"),
        ({"loader": iter([])}, TypeError, "can be read only once"),
        ({"loader": [draw()[0]]}, ValueError, "holds no labels"),
    ],
)
def test_other_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    model = network().train()
    with untouched(model), pytest.raises(error, match=message):
        lates.extract(model, **{"loader": loader(), **change})


def test_bad_blocks_are_found_before_the_loader_is_read() -> None:
    with pytest.raises(ValueError, match="Unknown block"):
        lates.extract(network(), fail_after(0), blocks=["layer9"])


def test_calibrate_refuses_rows_that_trained_the_probes_and_loaders_read_once() -> None:
    both = loader()
    with pytest.raises(ValueError, match="train and holdout read the same TensorDataset"):
        lates.calibrate(network(), train=both, holdout=both, progress=False)
    with pytest.raises(TypeError, match="The train loader is a generator"):
        lates.calibrate(network(), train=(batch for batch in loader()), holdout=loader(), progress=False)


def test_a_network_that_ends_in_softmax_is_warned_about() -> None:
    model = nn.Sequential(network(), nn.Softmax(1)).eval()
    with pytest.warns(UserWarning, match="look like probabilities"):
        lates.calibrate(model, train=loader(60), holdout=loader(30, seed=1), budget=None, progress=False)


def test_probes_need_the_training_split(problem: Problem) -> None:
    for blocks in (None, 2, ["stages.0"]):
        with pytest.raises(
            ValueError, match=r"pass train=.* For temperature scaling, which needs none, pass blocks=\[\]"
        ):
            calibrate(problem, train=None, blocks=blocks)
    assert calibrate(problem, train=None, blocks=[]).member_names == ["head"]


def test_a_hold_out_that_trained_something_is_refused(problem: Problem) -> None:
    dataset = TensorDataset(*draw_patterns(100, 10, seed=5))
    whole = DataLoader(dataset, 50)
    with pytest.raises(ValueError, match="train and holdout read the same TensorDataset"):
        calibrate(problem, train=whole, holdout=DataLoader(dataset, 20))
    parts = [DataLoader(Subset(dataset, list(rows)), 50) for rows in (range(60), range(50, 100))]
    with pytest.raises(ValueError, match="share 10 rows"):
        calibrate(problem, train=parts[0], holdout=parts[1])


def test_choices_are_checked_before_anything_is_read(problem: Problem) -> None:
    class Untouchable:
        def __iter__(self) -> None:
            raise AssertionError("was read")

    for choice, message in (
        ({"loss": "hinge"}, 'Unknown loss "hinge"'),
        ({"budget": -1.0}, "budget=-1.0"),
        ({"blocks": ["stages.9"]}, r'Unknown block "stages.9"\. Blocks of this model: stages.0'),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(problem, train=Untouchable(), holdout=Untouchable(), **choice)
    with pytest.raises(TypeError, match="can be read only once"):
        calibrate(problem, holdout=iter(problem.holdout))
    with pytest.raises(TypeError, match="can be read only once"):
        calibrate(problem, train=iter(problem.train))


@pytest.mark.parametrize("fault", ["range", "float", "nan"])
def test_bad_rows_are_refused(problem: Problem, fault: str) -> None:
    images, labels = draw_patterns(40, 10, seed=6)
    if fault == "range":
        labels[7] = 10
    elif fault == "float":
        labels = labels.double()
    else:
        images[3] = math.nan
    with pytest.raises((ValueError, TypeError), match=r"labels hold 10|expected integer class numbers|NaN"):
        calibrate(problem, holdout=[(images, labels)], blocks=[])
