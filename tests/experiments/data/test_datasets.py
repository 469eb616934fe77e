"""Data come in unharmed or not at all: images of the right kind, splits that never overlap, folders that are read in order."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from experiments.data.archives import DataError
from experiments.data.datasets import (
    FolderSet,
    ImageSet,
    decode_batches,
    in_order,
    load_dataset,
    load_folder,
    load_tiny_imagenet,
)
from experiments.data.natural import IMAGES, SYNSETS, select_natural
from experiments.data.splits import split_indices
from tests.experiments.data.image_files import write_tiny_imagenet

# Images in memory


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64), r"uint8 .*got torch\.float32 \[2, 3, 4, 4\]"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), r"shape \[2\]; got .*\[3\]"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]), r"2 classes lie in 0…1; got 0…2"),
    ],
)
def test_an_image_set_refuses_what_does_not_fit(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ImageSet(images, labels, ("a", "b"))


# Splits


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    holdout=st.floats(0, 0.5),
    small=st.floats(0.01, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_splits_are_disjoint_stratified_and_nested(counts: list[int], holdout: float, small: float, seed: int) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    full = split_indices(labels, train_fraction=1 - holdout, holdout_fraction=holdout, seed=seed)
    part = split_indices(labels, train_fraction=small * (1 - holdout), holdout_fraction=holdout, seed=seed)
    less = split_indices(labels, train_fraction=1 - holdout, holdout_fraction=small * holdout, seed=seed)
    train, held = set(full.train.tolist()), set(full.holdout.tolist())
    assert not train & held
    assert set(part.train.tolist()) <= train
    assert torch.equal(part.holdout, full.holdout)
    assert set(less.holdout.tolist()) <= held
    for label, count in enumerate(counts):
        assert abs(int((labels[full.train] == label).sum()) - (1 - holdout) * count) <= 1
        assert abs(int((labels[full.holdout] == label).sum()) - holdout * count) <= 0.5


def test_a_split_is_the_same_for_ever_and_its_digest_tells_splits_apart() -> None:
    labels = torch.arange(50_000) % 10
    split = split_indices(labels, train_fraction=0.9, holdout_fraction=0.1, seed=0)
    assert (len(split.train), len(split.holdout)) == (45_000, 5_000)
    assert split.digest == "bb6c33f3eb88"
    others = [(0.9, 0.1, 1), (0.5, 0.1, 0), (0.9, 0.02, 0)]
    digests = {split_indices(labels, train_fraction=t, holdout_fraction=h, seed=s).digest for t, h, s in others}
    assert len({split.digest} | digests) == 4


# Folders of images


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two classes: a red JPEG and a green PNG of odd sizes, and a file that is no image."""
    root = tmp_path / "tree"
    for name in ("ash", "birch"):
        (root / name).mkdir(parents=True)
    Image.new("RGB", (90, 61), (250, 0, 0)).save(root / "ash" / "one.JPEG")
    Image.new("P", (40, 77), 0).save(root / "ash" / "two.png")
    Image.new("RGB", (48, 48), (0, 250, 0)).save(root / "birch" / "three.png")
    (root / "birch" / "notes.txt").write_text("not an image")
    return root


def test_a_folder_is_read_class_by_class(tree: Path) -> None:
    data = load_folder(tree, size=32)
    assert data.classes == ("ash", "birch")
    assert data.labels.tolist() == [0, 0, 1]
    images, labels = next(decode_batches(data, in_order(3, 3), workers=0))
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [0, 0, 1]
    assert images[0].float().mean((1, 2)).tolist() == pytest.approx([250, 0, 0], abs=6)
    assert images[2].float().mean((1, 2)).tolist() == [0, 250, 0]


def test_the_centre_is_cut_out(tmp_path: Path) -> None:
    """Of 64 x 128 pixels the square of 56 around the centre remains; at size 56 nothing is resampled."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 128, 3), dtype=np.uint8)
    (tmp_path / "class").mkdir()
    Image.fromarray(pixels).save(tmp_path / "class" / "image.png")
    image, _ = load_folder(tmp_path, size=56)[0]
    assert np.array_equal(image.numpy(), pixels[4:60, 36:92].transpose(2, 0, 1))


def test_a_corrupt_image_is_named_even_from_a_worker(tree: Path) -> None:
    whole = (tree / "birch" / "three.png").read_bytes()
    (tree / "birch" / "three.png").write_bytes(whole[: len(whole) // 2])
    for workers in (0, 1):
        with pytest.raises(DataError) as fault:
            list(decode_batches(load_folder(tree, size=32), in_order(3, 2), workers))
        assert re.fullmatch(r"Cannot decode \S*three\.png: .*\. Replace or remove the file\.", str(fault.value))


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no folders"):
        load_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty holds no JPEG or PNG"):
        load_folder(tmp_path)


# Tiny-ImageNet


def test_tiny_imagenet_is_read_whole(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200", ["n2", "n1"], train=3, test=2)
    train, test = load_dataset("tiny_imagenet", tmp_path)
    assert isinstance(test, FolderSet)
    assert train.classes == test.classes == ("n1", "n2")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert test.labels.tolist() == [1, 0, 1, 0]
    images, labels = next(decode_batches(test, in_order(4, 4), workers=0))
    assert images.shape == (4, 3, 64, 64)
    assert images[:, 0, 0, 0].tolist() == [200, 200, 201, 201]
    assert images[:, 1, 0, 0].tolist() == labels.tolist()


def test_tiny_imagenet_that_is_missing_or_odd_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no .*val_annotations\.txt\. Unpack http"):
        load_tiny_imagenet(tmp_path)
    write_tiny_imagenet(tmp_path, ["n1"], train=1, test=1)
    for line in ("val_0.JPEG\tn3\n", "val_0.JPEG\n"):
        (tmp_path / "val" / "val_annotations.txt").write_text(line)
        with pytest.raises(DataError, match="a line without a file and a synset"):
            load_tiny_imagenet(tmp_path)


def test_natural_images_are_the_first_of_each_synset_reduced_by_area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.data.natural.IMAGES", 2)
    write_tiny_imagenet(tmp_path, ["n1", "n2", "n3", "n4"], train=3, test=1)
    pixels = np.zeros((64, 64, 3), dtype=np.uint8)
    pixels[::2, ::2] = 200
    Image.fromarray(pixels).save(tmp_path / "train" / "n4" / "images" / "n4_0.png")
    (tmp_path / "train" / "n4" / "images" / "n4_0.JPEG").unlink()
    natural = select_natural(load_tiny_imagenet(tmp_path)[0], {"b": ("n4",), "c": ("n3", "n1")}, ("a", "b", "c"))
    assert natural.labels.tolist() == [1, 1, 2, 2]
    assert [Path(path).stem for path in natural.paths] == ["n4_0", "n4_1", "n3_0", "n1_0"]
    image, _ = natural[0]
    assert image.shape == (3, 32, 32)
    assert (image == 50).all()


@pytest.mark.parametrize("dataset", SYNSETS)
def test_each_class_has_about_as_many_natural_images(dataset: str) -> None:
    synsets = [synset for each in SYNSETS[dataset].values() for synset in each]
    assert len(set(synsets)) == len(synsets)
    assert all(IMAGES // len(each) * len(each) >= 498 for each in SYNSETS[dataset].values())
