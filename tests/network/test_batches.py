"""What loaders may yield and networks may return; everything else is named, with what was expected and the way out."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from lates.network.batches import (
    IGNORED,
    call_arguments,
    check_loader,
    copy_inputs,
    count_rows,
    read_batches,
    read_logits,
    take_rows,
)

CPU = torch.device("cpu")
IMAGES, LABELS = torch.arange(6.0).reshape(3, 2), torch.tensor([2, IGNORED, 0])


def read_one(item: Any) -> tuple[Any, Tensor]:
    (batch,) = read_batches([item], CPU, "train")
    return batch


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ((IMAGES, LABELS), ((IMAGES,), {})),
        ([IMAGES, LABELS], ((IMAGES,), {})),
        ((IMAGES, IMAGES + 1, LABELS), ((IMAGES, IMAGES + 1), {})),
        (OrderedDict([("pixels", IMAGES), ("labels", LABELS), ("scale", 2)]), ((), {"pixels": IMAGES, "scale": 2})),
        ({"pixels": IMAGES, "label": LABELS}, ((), {"pixels": IMAGES})),
        ({"image": IMAGES, "label": LABELS}, ((IMAGES,), {})),
        (({"pixels": IMAGES}, LABELS), ((), {"pixels": IMAGES})),
        ((IMAGES.numpy(), LABELS.numpy()), ((IMAGES,), {})),
        ((IMAGES, LABELS.tolist()), ((IMAGES,), {})),
    ],
)
def test_batches_are_inputs_and_labels(item: Any, expected: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    inputs, labels = read_one(item)
    assert (labels.tolist(), labels.dtype) == (LABELS.tolist(), torch.int64)
    positional, named = call_arguments(inputs)
    assert all(torch.equal(given, wanted) for given, wanted in zip(positional, expected[0], strict=True))
    assert str(named) == str(expected[1])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (IMAGES, "A train batch holds no labels: it is a Tensor"),
        ([IMAGES], "no labels: it is a list of 1"),
        ((IMAGES, None), "no labels: it is a tuple of 2"),
        ({"pixels": IMAGES, "mask": IMAGES}, 'its keys are pixels, mask. Expected a key "labels" or "label"'),
        ({"pixels": IMAGES, "labels": None}, "holds no labels"),
        ({"pixels": IMAGES, "labels": LABELS, "label": LABELS}, "holds labels twice"),
        ("ab", "no labels: it is a str"),
    ],
)
def test_batches_without_labels_or_with_two_are_refused(item: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_one(item)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.zeros(3), TypeError, r"train labels are torch.float32.*labels\.long\(\)"),
        (torch.zeros(3, 4), ValueError, r"\[3, 4\]; expected \[n\].*\(multi-label\) .* one-hot .*argmax\(1\)"),
        (torch.zeros(3, 4, 4).long(), ValueError, r"\[3, 4, 4\]; expected \[n\].*label per pixel"),
        (torch.zeros(3, 1).long(), ValueError, r"\[3, 1\]; expected \[n\].* Pass labels\.squeeze\(1\)\."),
        (1, ValueError, r"shape \[\]; expected \[n\].*a Dataset\? Wrap it in a DataLoader"),
        (["cat", "dog"], TypeError, "labels are a list.*expected integer class numbers"),
        (np.array(["cat", "dog"]), TypeError, "train labels have dtype <U3; expected numbers"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_one((IMAGES, labels))


@pytest.mark.parametrize("loader", [[], DataLoader(TensorDataset(IMAGES[:0], LABELS[:0]))])
def test_an_empty_loader_is_refused(loader: Any) -> None:
    with pytest.raises(ValueError, match=r"train loader yielded no batch.*dataset empty"):
        list(read_batches(loader, CPU, "train"))


@pytest.mark.parametrize(
    ("loader", "kind"),
    [(None, "None"), (IMAGES, "a Tensor"), (IMAGES.numpy(), "a ndarray"), ({"x": IMAGES}, "a dict"), (3, "a int")],
)
def test_what_is_no_loader_is_refused(loader: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"The train loader is {kind}; expected an iterable of \(inputs, labels\) batches"):
        list(read_batches(loader, CPU, "train"))


def generate() -> Iterator[tuple[Tensor, Tensor]]:
    yield IMAGES, LABELS


@pytest.mark.parametrize("make", [generate, lambda: iter([(IMAGES, LABELS)]), lambda: map(tuple, [[IMAGES, LABELS]])])
def test_what_can_be_read_once_only_is_refused_before_it_is_read(make: Callable[[], Iterator[Any]]) -> None:
    loader = make()
    with pytest.raises(TypeError, match=f"holdout loader is a {type(loader).__name__}.*only once"):
        check_loader(loader, "holdout")
    with pytest.raises(TypeError, match="only once"):
        next(read_batches(loader, CPU))
    assert len(list(loader)) == 1


def test_copied_inputs_can_be_written_to() -> None:
    inputs = {"a": IMAGES.clone(), "b": (IMAGES.clone(), "text")}
    copied = copy_inputs(inputs)
    copied["a"].zero_()
    copied["b"][0].zero_()
    assert copied["b"][1] == "text"
    assert torch.equal(inputs["a"], IMAGES)
    assert torch.equal(inputs["b"][0], IMAGES)


@pytest.mark.parametrize(("taken", "places"), [(1, [0]), (3, [0, 1, 2]), (5, [0, 1, 2, 0, 1])])
def test_rows_are_taken_from_what_has_rows(taken: int, places: list[int]) -> None:
    rows, scale = torch.arange(6).view(3, 2), torch.tensor(2.0)
    inputs = {"scale": scale, "rows": rows, "others": (torch.arange(4), "text")}
    assert (count_rows(inputs), count_rows(("one text", "another"))) == (3, 0)
    rows_taken = take_rows(inputs, 3, taken)
    assert rows_taken["rows"].tolist() == rows[places].tolist()
    assert (rows_taken["scale"], rows_taken["others"][0].tolist(), rows_taken["others"][1]) == (
        scale,
        [0, 1, 2, 3],
        "text",
    )


# What networks return


class WithAuxiliary(NamedTuple):
    logits: Tensor
    auxiliary: Tensor


@dataclass
class Output:
    logits: Tensor | None
    hidden: Tensor


@pytest.mark.parametrize(
    "output",
    [
        IMAGES,
        (IMAGES, None),
        [IMAGES, IMAGES + 1],
        {"loss": torch.zeros(()), "logits": IMAGES},
        Output(IMAGES, IMAGES + 1),
        WithAuxiliary(IMAGES, IMAGES + 1),
    ],
)
def test_logits_are_found_in_what_classifiers_return(output: Any) -> None:
    assert read_logits(output) is IMAGES


@pytest.mark.parametrize("shape", [(3, 1), (3,)])
def test_one_logit_becomes_two_columns_with_the_same_probability(shape: tuple[int, ...]) -> None:
    single = torch.tensor([-30.0, 0.1, 5.0])
    logits = read_logits(single.reshape(shape))
    assert torch.allclose(logits.softmax(1)[:, 1], single.sigmoid(), atol=1e-6)
    assert torch.equal(read_logits(single[0]), logits[:1]), "of one row it may have been squeezed to a scalar"


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        (torch.zeros(2, 3, 4, 4), ValueError, r"\[2, 3, 4, 4\]: a prediction per pixel or token.*pool or flatten"),
        (torch.zeros(2, 5, 3), ValueError, r"\[2, 5, 3\]: a prediction per pixel or token"),
        (torch.zeros(2, 3).long(), TypeError, r"torch\.int64 values; expected floating-point logits"),
        ({"out": IMAGES}, TypeError, "returned a dict without logits"),
        (Output(None, IMAGES), TypeError, "returned a Output without logits"),
        ((), TypeError, "returned a tuple without logits"),
        (None, TypeError, "returned a NoneType without logits"),
    ],
)
def test_other_outputs_are_refused(output: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_logits(output)


# What is passed to the network


@pytest.mark.parametrize(
    ("batch", "came"),
    [
        (lambda x, y: (x, y, torch.arange(len(y))), "2 inputs"),
        (lambda x, y: {"image": x, "label": y, "path": ["a.png"] * len(y)}, "the keys image, path"),
    ],
)
def test_inputs_that_the_network_has_no_place_for_are_refused_by_the_loaders_name(batch: Any, came: str) -> None:
    holdout = [batch(torch.randn(120, 4), torch.arange(120) % 3)]
    message = rf"A holdout batch holds {came} beside the labels; Sequential.forward takes \(input\): .* leave the index out"
    with pytest.raises(TypeError, match=message):
        lates.calibrate(nn.Sequential(nn.Linear(4, 3)), holdout=holdout, blocks=[], progress=False)
