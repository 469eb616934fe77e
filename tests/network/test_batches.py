"""What loaders may yield and networks may return; everything else is named, with what was expected and the way out."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Subset, SubsetRandomSampler, TensorDataset

import lates
from lates.network.batches import (
    IGNORED,
    Batch,
    call_arguments,
    check_loader,
    copy_inputs,
    count_rows,
    read_batches,
    read_logits,
    take_rows,
)
from lates.network.overlap import refuse_overlap

CPU = torch.device("cpu")
IMAGES, LABELS = torch.arange(6.0).reshape(3, 2), torch.tensor([2, IGNORED, 0])
DATASET = TensorDataset(torch.zeros(10, 2), torch.zeros(10, dtype=torch.long))


def read_one(item: Any) -> Batch:
    (batch,) = read_batches([item], CPU, "train")
    return batch


@pytest.mark.parametrize("form", [tuple, list])
def test_a_pair_is_inputs_and_labels(form: Callable[[Any], Any]) -> None:
    batch = read_one(form((IMAGES, LABELS)))
    assert batch.inputs is IMAGES
    assert batch.labels.tolist() == LABELS.tolist()
    assert batch.rows == 3


def test_of_a_longer_tuple_the_last_are_labels_and_the_rest_positional_inputs() -> None:
    batch = read_one((IMAGES, IMAGES + 1, LABELS))
    positional, named = call_arguments(batch.inputs)
    assert [values.tolist() for values in positional] == [IMAGES.tolist(), (IMAGES + 1).tolist()]
    assert named == {}


@pytest.mark.parametrize("key", ["labels", "label"])
def test_a_mapping_gives_named_inputs_without_its_labels(key: str) -> None:
    batch = read_one(OrderedDict([("pixels", IMAGES), (key, LABELS), ("scale", 2)]))
    assert call_arguments(batch.inputs) == ((), {"pixels": IMAGES, "scale": 2})
    assert batch.labels.tolist() == LABELS.tolist()


def test_a_pair_of_mapping_and_labels() -> None:
    assert call_arguments(read_one(({"pixels": IMAGES}, LABELS)).inputs) == ((), {"pixels": IMAGES})


def test_arrays_and_lists_become_tensors() -> None:
    backwards = np.arange(6.0).reshape(3, 2)[::-1]
    backwards.flags.writeable = False
    batch = read_one(({"pixels": backwards}, [2, 1, 0]))
    assert batch.inputs["pixels"].tolist() == backwards.tolist()
    assert batch.labels.dtype == torch.int64
    assert read_one((IMAGES, np.array([1, 2, 3], dtype=np.uint8))).labels.tolist() == [1, 2, 3]


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
        (torch.zeros(3, 4), ValueError, r"\[3, 4\]: several labels per row \(multi-label\) or one-hot.*argmax\(1\)"),
        (torch.zeros(3, 4, 4).long(), ValueError, r"\[3, 4, 4\]; expected \[n\].*label per pixel"),
        (torch.zeros(3, 1).long(), ValueError, r"\[3, 1\]; expected \[n\].* Pass labels\.squeeze\(1\)\."),
        (torch.zeros(3, 1), ValueError, r"\[3, 1\]; expected \[n\].* Pass labels\.squeeze\(1\)\.long\(\)"),
        (torch.tensor(1), ValueError, r"shape \[\]; expected \[n\].*a Dataset\? Wrap it in a DataLoader"),
        (1, ValueError, r"shape \[\]; expected \[n\].*a Dataset\? Wrap it in a DataLoader"),
        (["cat", "dog"], TypeError, "labels are a list.*expected integer class numbers"),
        (
            np.ma.masked_array([0, 1, 2], mask=[False, True, False]),
            TypeError,
            "labels came as MaskedArray.*Drop the masked rows",
        ),
        (np.array(["cat", "dog"]), TypeError, "train labels have dtype <U3; expected numbers"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_one((IMAGES, labels))


@pytest.mark.parametrize("loader", [[], DataLoader(Subset(DATASET, []))])
def test_an_empty_loader_is_refused(loader: Any) -> None:
    with pytest.raises(ValueError, match=r"train loader yielded no batch.*dataset empty"):
        list(read_batches(loader, CPU, "train"))


@pytest.mark.parametrize(
    ("loader", "kind"),
    [(None, "None"), (IMAGES, "a Tensor"), (IMAGES.numpy(), "a ndarray"), ({"x": IMAGES}, "a dict"), (3, "a int")],
)
def test_what_is_no_loader_is_refused(loader: Any, kind: str) -> None:
    with pytest.raises(
        TypeError, match=rf"The train loader is {kind}; expected an iterable of \(inputs, labels\) batches"
    ):
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
    assert count_rows(inputs) == 3
    found = take_rows(inputs, 3, taken)
    assert found["rows"].tolist() == rows[places].tolist()
    assert (found["scale"], found["others"][0].tolist(), found["others"][1]) == (scale, [0, 1, 2, 3], "text")


def test_inputs_without_a_tensor_have_no_rows() -> None:
    assert count_rows(("one text", "another")) == 0


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


@settings(deadline=None)
@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=5), st.sampled_from([(-1, 1), (-1,)]))
def test_one_logit_becomes_two_columns_with_the_same_probability(z: list[float], shape: tuple[int, ...]) -> None:
    single = torch.tensor(z)
    logits = read_logits(single.reshape(shape))
    assert logits.shape == (len(z), 2)
    assert torch.allclose(logits.softmax(1)[:, 1], single.sigmoid(), atol=1e-6)


def test_the_one_logit_of_one_row_may_have_been_squeezed_to_a_scalar() -> None:
    assert read_logits(torch.tensor([[3.0]]).squeeze()).tolist() == [[0.0, 3.0]]


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


# Rows that train and hold-out share


def over(rows: Any) -> DataLoader:
    return DataLoader(Subset(DATASET, rows))


def sampled(rows: list[int]) -> DataLoader:
    return DataLoader(DATASET, sampler=SubsetRandomSampler(rows))


def batch_sampled(rows: list[int]) -> DataLoader:
    return DataLoader(DATASET, batch_sampler=BatchSampler(SubsetRandomSampler(rows), 2, drop_last=False))


def listed(rows: list[int]) -> DataLoader:
    return DataLoader(DATASET, sampler=rows)


@pytest.mark.parametrize("make", [over, sampled, batch_sampled, listed])
@settings(deadline=None)
@given(rows=st.sets(st.integers(0, 9), min_size=1), other=st.sets(st.integers(0, 9), min_size=1))
def test_rows_of_one_dataset_are_refused_exactly_when_they_overlap(
    make: Callable[[list[int]], DataLoader], rows: set[int], other: set[int]
) -> None:
    if rows & other:
        with pytest.raises(ValueError, match=rf"share {len(rows & other)} rows of one TensorDataset \(row"):
            refuse_overlap(make(list(rows)), make(list(other)))
    else:
        refuse_overlap(make(list(rows)), make(list(other)))


def test_subsets_of_subsets_are_traced_to_their_dataset() -> None:
    inner = Subset(DATASET, [5, 6, 7])
    with pytest.raises(ValueError, match=r"share 1 rows.*\(row 7, for one\)"):
        refuse_overlap(DataLoader(Subset(inner, [2])), over(np.array([7, 8])))
    refuse_overlap(DataLoader(Subset(inner, [0, 1])), over(torch.tensor([7, 8])))
    with pytest.raises(ValueError, match=r"\(row 6, for one\)"):
        refuse_overlap(DataLoader(inner, sampler=SubsetRandomSampler([1])), sampled([6]))


@pytest.mark.parametrize("holdout", [DataLoader(DATASET), DataLoader(DATASET, shuffle=True), over([1, 2])])
def test_the_same_dataset_read_whole_is_refused(holdout: DataLoader) -> None:
    with pytest.raises(ValueError, match=r"train and holdout read the same TensorDataset.*random_split"):
        refuse_overlap(DataLoader(DATASET), holdout)


def test_loaders_without_a_dataset_are_compared_themselves() -> None:
    batches = [(IMAGES, LABELS)]
    with pytest.raises(ValueError, match="read the same list"):
        refuse_overlap(batches, batches)
    with pytest.raises(ValueError, match="share 3 rows: their tensors lie in the same memory"):
        refuse_overlap(batches, [{"images": IMAGES, "labels": LABELS}])
    refuse_overlap(batches, [(IMAGES.clone(), LABELS)])
    refuse_overlap([(IMAGES[:2], LABELS)], [(IMAGES[2:], LABELS)])


def test_only_input_of_a_mapping_is_passed_by_position() -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    images, labels = torch.randn(120, 4), torch.arange(120) % 3
    pairs, mappings = [(images, labels)], [{"image": images, "label": labels}]
    plain, mapped = (
        lates.calibrate(network, holdout=loader, blocks=[], progress=False) for loader in (pairs, mappings)
    )
    assert mapped.temperature == plain.temperature


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            lambda x, y: (x, y, torch.arange(len(y))),
            r"A holdout batch holds 2 inputs beside the labels; Sequential.forward takes \(input\): .* leave the index out",
        ),
        (
            lambda x, y: {"image": x, "label": y, "path": ["a.png"] * len(y)},
            r"A holdout batch holds the keys image, path beside the labels; .* Let the loader give what the network takes",
        ),
    ],
)
def test_inputs_that_the_network_has_no_place_for_are_refused_by_the_loaders_name(batch: Any, message: str) -> None:
    network = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(TypeError, match=message):
        lates.calibrate(network, holdout=[batch(torch.randn(120, 4), torch.arange(120) % 3)], blocks=[], progress=False)
