"""Bad input is named, with what was expected and the way out, and leaves the model as it was."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from lates.network.tokens import TokenView
from tests.conftest import Problem, calibrate
from tests.networks import CLASSES, Network, draw, fail_after, loader, network, untouched

NO_PRIOR = replace(lates.DEFAULT, prior=0.0)


def broken(part: str, value: float) -> Network:
    model = network()
    model.get_parameter(f"{part}.bias").data[0] = value
    return model


@pytest.mark.parametrize(("value", "fault"), [(torch.nan, "NaN"), (torch.inf, r"\+inf")])
def test_logits_and_blocks_that_are_not_finite_are_named(value: float, fault: str) -> None:
    model = broken("last", value)
    with untouched(model), pytest.raises(ValueError, match=rf"network's logits .* hold {fault} in row 0 \(20 of 20"):
        lates.extract(model, loader())
    with pytest.raises(ValueError, match=r'Block "body\.2" puts out NaN or infinite values in 20 of 20 rows'):
        lates.extract(broken("body.0", value), loader())


@pytest.mark.parametrize("passes", [1, 2])
def test_inputs_that_hold_nan_are_named_by_loader_and_row(passes: int) -> None:
    images, labels = draw()
    images[13, 0, 0, 0] = torch.nan
    batches, sound = DataLoader(TensorDataset(images, labels), 8), loader(seed=1)
    rows = f"{passes} of {20 * passes} rows of the train loader, the first of them row 13. Look for .* row's inputs"
    with pytest.raises(ValueError, match=rf'Block "body\.2" puts out NaN or infinite values in {rows}'):
        lates.calibrate(network(), train=batches, holdout=sound, views=lambda x: x, passes=passes, progress=False)
    with pytest.raises(ValueError, match=r"logits of the holdout loader hold NaN in row 13 \(1 of 20.*row's inputs"):
        lates.calibrate(network(), holdout=batches, blocks=[], progress=False)


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
        ({"passes": 1.5}, TypeError, r"passes=1\.5: expected a whole number"),
        ({"seed": None}, TypeError, "seed=None: expected a whole number"),
        ({"seed": 2**64}, ValueError, "seed=18446744073709551616: expected a whole number of at most 64 bits"),
        ({"memory": "1G"}, ValueError, "memory='1G': expected a number of bytes"),
        ({"device": "cuda:99"}, ValueError, r'device="cuda:99" cannot be used here \(.*Leave it out'),
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
def test_bad_arguments_of_extract_are_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    model = network().train()
    with untouched(model), pytest.raises(error, match=message):
        lates.extract(model, **{"loader": loader(), **change})


@pytest.mark.parametrize(
    ("options", "message", "batches"),
    [
        ({"views": "robst"}, 'Unknown views="robst"', 0),
        ({"passes": 0}, "passes=0: expected at least 1", 0),
        ({"views": "flip"}, 'views="flip" needs images', 1),
        ({"views": TokenView((0,), 1)}, "Views of tokens need token ids", 1),
        ({"expect_shift": True}, r'"auto" has none for such inputs\. Pass views=', 1),
    ],
)
def test_views_and_passes_that_suit_no_table_are_refused_by_the_first_batch_at_the_latest(
    options: dict[str, Any], message: str, batches: int
) -> None:
    class Counted(list[Any]):
        read = 0

        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                self.read += 1
                yield batch

    rows = [(torch.randn(50, 4), torch.arange(50) % 3) for _ in range(3)]
    train, holdout = Counted(rows), Counted(rows)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(ValueError, match=message):
        lates.calibrate(model, train=train, holdout=holdout, **options)
    assert (train.read, holdout.read) == (0, batches)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "meta": lambda values: values.to("meta"),
    "nested": lambda values: torch.nested.nested_tensor(list(values.detach()), layout=torch.jagged),
    "sparse": lambda values: values.to_sparse(),
}


@pytest.mark.parametrize("form", FORMS)
def test_tensors_without_plain_values_are_named(form: str) -> None:
    class Changed(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return FORMS[form](super().forward(input))

    images, labels, logits = torch.randn(8, 4), torch.arange(8) % 2, torch.randn(8, 2)
    changed_labels = FORMS[form](labels[:, None] if form == "nested" else labels)
    for arguments in ((FORMS[form](logits), labels), (logits, changed_labels)):
        with pytest.raises(TypeError, match=rf"(logits|labels) are a {form} tensor; expected a plain one"):
            lates.metrics.ece(*arguments)
    with pytest.raises(TypeError, match=rf"The holdout labels are a {form} tensor"):
        lates.calibrate(nn.Linear(4, 2), holdout=[(images, changed_labels)], blocks=[], progress=False)
    with pytest.raises(TypeError, match=rf"[Tt]he network.* a {form} tensor"):
        lates.calibrate(Changed(4, 2), holdout=[(images, labels)], blocks=[], progress=False)


def test_a_network_and_inputs_on_the_meta_device_are_refused() -> None:
    images, labels = torch.randn(8, 4), torch.arange(8) % 2
    with pytest.raises(ValueError, match=r'device="meta" holds no values\. Load the model'):
        lates.calibrate(nn.Linear(4, 2, device="meta"), holdout=[(images, labels)], blocks=[], progress=False)
    with pytest.raises(TypeError, match="inputs are a meta tensor"):
        lates.calibrate(nn.Linear(4, 2), holdout=[(images.to("meta"), labels)], blocks=[], progress=False)


def test_seeds_beyond_64_bits_are_refused_by_metrics_too() -> None:
    logits, labels = torch.randn(8, 2), torch.arange(8) % 2
    with pytest.raises(ValueError, match="expected a whole number of at most 64 bits"):
        lates.metrics.bootstrap(lates.metrics.nll, logits, labels, seed=2**64)
    with pytest.raises(ValueError, match="expected a whole number of at most 64 bits"):
        lates.metrics.ece_floor(logits, seed=2**64)


def test_logits_of_a_dtype_that_only_stores_are_refused() -> None:
    with pytest.raises(TypeError, match=r"logits have dtype torch\.float8_e4m3fn.*Cast them by \.float\(\)"):
        lates.metrics.ece(torch.randn(8, 2).to(torch.float8_e4m3fn), torch.arange(8) % 2)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    expected = lates.extract(network(), loader(), views="jitter", passes=2, seed=3)
    numbers: dict[str, Any] = {"passes": np.int64(2), "seed": torch.tensor(3)}
    found = lates.extract(network(), loader(), views="jitter", **numbers)
    assert all(torch.equal(found.blocks[name], values) for name, values in expected.blocks.items())


def test_a_network_that_ends_in_softmax_is_warned_about_once() -> None:
    model = nn.Sequential(network(), nn.Softmax(1)).eval()
    with pytest.warns(UserWarning, match="look like probabilities.*let the network return") as warned:
        lates.calibrate(model, train=loader(60), holdout=loader(100, seed=1), budget=None, progress=False)
    assert len([warning for warning in warned if "probabilities" in str(warning.message)]) == 1


def test_probes_need_the_training_split(problem: Problem) -> None:
    for blocks in (None, 2, ["stages.0"]):
        with pytest.raises(ValueError, match=r"pass train=.* For temperature scaling, which needs none, pass blocks=\[\]"):
            calibrate(problem, train=None, blocks=blocks)
    for none in ([], 0):
        assert calibrate(problem, train=None, blocks=none).member_names == ["head"]


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
    for choice in ({"seed": None}, {"memory": "1G"}, {"device": "cuda:99"}):
        with pytest.raises((TypeError, ValueError), match=f"{next(iter(choice))}=.*"):
            calibrate(problem, train=Untouchable(), holdout=Untouchable(), **choice)
    with pytest.raises(TypeError, match="can be read only once"):
        calibrate(problem, holdout=iter(problem.holdout))
    with pytest.raises(TypeError, match="can be read only once"):
        calibrate(problem, train=iter(problem.train))


class Masking(Network):
    """A class that is out of the question gets a logit of -inf."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).index_fill(1, torch.tensor([2]), -torch.inf)


def batched(images: Tensor, labels: Tensor, shuffle: bool = False) -> DataLoader:
    return DataLoader(TensorDataset(images, labels), 8, shuffle=shuffle)


@pytest.mark.parametrize(
    ("holdout", "message"),
    [
        (None, "The holdout loader is None; expected an iterable of"),
        (draw()[0], "The holdout loader is a Tensor; expected an iterable of"),
        ([], "The holdout loader yielded no batch"),
        (draw(), "A holdout batch holds no labels: it is a Tensor"),
        (TensorDataset(*draw()), "a Dataset. Wrap it in a DataLoader"),
        ([(draw()[0], draw()[1].double())], "The holdout labels are torch.float64"),
        (batched(draw()[0], draw()[1].double()), "The holdout labels are torch.float64"),
        (
            batched(draw()[0], draw()[1] + 1, shuffle=True),
            f"labels hold {CLASSES} in row .*expected 0 to {CLASSES - 1}",
        ),
        (
            batched(draw()[0] * torch.nan, draw()[1]),
            "puts out NaN or infinite values in 20 of 20 rows of the holdout loader",
        ),
    ],
)
def test_a_bad_hold_out_is_found_before_the_training_split_is_read(holdout: Any, message: str) -> None:
    model = network().train()
    with untouched(model), pytest.raises((TypeError, ValueError), match=message):
        lates.calibrate(model, train=fail_after(0), holdout=holdout, progress=False)


@pytest.mark.parametrize("blocks", [None, []])
def test_infinite_logits_are_refused_with_what_to_do(blocks: list[str] | None) -> None:
    model = Masking().eval()
    with pytest.raises(ValueError, match=r"holdout loader hold -inf in row 0; .*logits\.clamp\(min=-100\)"):
        lates.calibrate(model, train=fail_after(0), holdout=loader(), blocks=blocks, progress=False)


def test_masked_classes_are_fitted_when_clamped_as_the_message_says() -> None:
    class Clamped(Masking):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images).clamp(min=-100)

    model = Clamped().eval()
    model.load_state_dict(network().state_dict())
    images, _ = draw(200)
    with torch.no_grad():
        two = model(images)[:, :2]
    labels = (2 * two).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(0))[:, 0]
    calibrated = lates.calibrate(model, holdout=[(images, labels)], blocks=[], progress=False, settings=NO_PRIOR)
    assert calibrated.fit.certified
    assert calibrated.temperature == pytest.approx(lates.TemperatureScaling(prior=0).fit(two, labels).temperature_)


def test_a_loader_of_unknown_kind_is_read_once() -> None:
    class Counting:
        readings = 0

        def __iter__(self) -> Iterator[Any]:
            self.readings += 1
            return iter(loader(40, seed=1))

    holdout = Counting()
    lates.calibrate(network(), train=loader(), holdout=holdout, budget=None, progress=False)
    assert holdout.readings == 1
