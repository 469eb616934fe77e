"""A run goes on from its files bitwise on a CPU, and takes no others."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from experiments.data.datasets import ImageSet
from experiments.data.files import DamagedError, write_whole
from experiments.training.checkpoints import RunFolder, load_tensors, save_tensors
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.loop import train_network
from tests.experiments.training.trainings import (
    ADAMW,
    SHORT,
    dropout_network,
    fail_if_trained,
    plain_network,
    same_weights,
)


@pytest.mark.parametrize("hyper", [SHORT, ADAMW], ids=["sgd", "adamw"])
def test_a_run_stopped_after_every_step_ends_in_the_same_weights(
    tmp_path: Path, images: ImageSet, hyper: Hyperparameters
) -> None:
    whole = dropout_network()
    undisturbed = train_network(hyper, whole, images, seed=3, device="cpu")
    network, steps = dropout_network(), []
    while not steps or steps[-1] < 8:
        network = dropout_network()
        progress = train_network(hyper, network, images, seed=3, device="cpu", folder=tmp_path, max_seconds=0)
        steps.append(progress.step)
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert same_weights(network, whole)
    again = train_network(hyper, network, images, seed=3, device="cpu", folder=tmp_path)
    assert again.losses == undisturbed.losses
    assert [path.name for path in tmp_path.iterdir()] == ["network.safetensors"]


def test_a_finished_run_is_only_loaded(tmp_path: Path, images: ImageSet) -> None:
    first, second = dropout_network(), dropout_network()
    done = train_network(SHORT, first, images, seed=3, device="cpu", folder=tmp_path)
    again = train_network(SHORT, second, images, seed=3, device="cpu", folder=tmp_path, report=fail_if_trained)
    assert again == done
    assert same_weights(first, second)
    assert not second.training


@pytest.mark.parametrize("limit", [0, math.inf], ids=["checkpoint", "network"])
def test_a_file_cut_in_half_is_named(tmp_path: Path, images: ImageSet, limit: float) -> None:
    train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path, max_seconds=limit)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DamagedError, match=rf"{path.name} is damaged .*Remove it"):
        train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path)


@pytest.mark.parametrize(("file", "step"), [("checkpoint.safetensors", 8), ("network.safetensors", 7)])
def test_only_the_file_of_the_network_may_say_that_it_is_finished(
    tmp_path: Path, images: ImageSet, file: str, step: int
) -> None:
    """Else untrained weights would be measured."""
    limit = 0 if file.startswith("checkpoint") else math.inf
    train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path, max_seconds=limit)
    tensors, facts = load_tensors(tmp_path / file) or ({}, {})
    facts["progress"]["step"] = step
    save_tensors(tmp_path / file, tensors, facts)
    with pytest.raises(DamagedError, match=rf"damaged \(it claims to be at step {step} of 8\)"):
        train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path)


@pytest.mark.parametrize("limit", [0, math.inf])
def test_a_folder_of_another_run_is_refused(tmp_path: Path, images: ImageSet, limit: float) -> None:
    def go(hyper: Hyperparameters, data: ImageSet, seed: int) -> None:
        train_network(hyper, plain_network(), data, seed=seed, device="cpu", folder=tmp_path, max_seconds=limit)

    go(SHORT, images, 3)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"of another run: its seed is 3, this run's is 4\. Choose another folder"):
        go(SHORT, images, 4)
    with pytest.raises(ValueError, match="its recipe is"):
        go(replace(SHORT, rate=0.01), images, 3)
    with pytest.raises(ValueError, match="its labels is"):
        go(SHORT, replace(images, labels=images.labels.flip(0)), 3)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_a_run_from_before_a_field_of_its_hyperparameters_is_still_its_own(tmp_path: Path, images: ImageSet) -> None:
    network = plain_network()
    done = train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path)
    tensors, facts = load_tensors(tmp_path / "network.safetensors") or ({}, {"recipe": {}})
    del facts["recipe"]["optimiser"]
    save_tensors(tmp_path / "network.safetensors", tensors, facts)
    again = train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path, report=fail_if_trained)
    assert again == done
    with pytest.raises(ValueError, match="its recipe is"):
        train_network(ADAMW, network, images, seed=3, device="cpu", folder=tmp_path)


def test_a_network_in_half_precision_serves_where_the_other_is_missing(tmp_path: Path, images: ImageSet) -> None:
    whole, loaded = dropout_network(), dropout_network()
    done = train_network(SHORT, whole, images, seed=3, device="cpu", folder=tmp_path)
    RunFolder(tmp_path).save_half(whole)
    (tmp_path / "network.safetensors").unlink()
    again = train_network(SHORT, loaded, images, seed=3, device="cpu", folder=tmp_path, report=fail_if_trained)
    assert again == done
    for one, other in zip(whole.parameters(), loaded.parameters(), strict=True):
        assert other.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path, images: ImageSet) -> None:
    train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path, max_seconds=0)
    other = r"of another network: its momentum\.1\.bias has shape None, here it has \(8,\)"
    with pytest.raises(ValueError, match=other):
        train_network(SHORT, dropout_network(), images, seed=3, device="cpu", folder=tmp_path)
    train_network(SHORT, plain_network(), images, seed=3, device="cpu", folder=tmp_path)
    with pytest.raises(ValueError, match=r"network\.safetensors is of another network: its 1\.bias has shape None"):
        train_network(SHORT, dropout_network(), images, seed=3, device="cpu", folder=tmp_path)


def test_the_finished_file_opens_with_safetensors_alone(tmp_path: Path, images: ImageSet) -> None:
    network = plain_network()
    train_network(SHORT, network, images, seed=3, device="cpu", folder=tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "network.safetensors")
    assert all(torch.equal(weights[name], tensor) for name, tensor in network.state_dict().items())
    _, facts = load_tensors(tmp_path / "network.safetensors") or ({}, {})
    assert facts["seed"] == 3
    assert facts["recipe"]["rate"] == SHORT.rate
    assert len(facts["progress"]["losses"]) == 2


def test_tensors_and_facts_survive_the_disk(tmp_path: Path) -> None:
    tensors = {"a": torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), "n": torch.tensor(7)}
    save_tensors(tmp_path / "file", tensors, {"seed": 1, "loss": 0.1})
    found, facts = load_tensors(tmp_path / "file") or ({}, {})
    assert facts == {"seed": 1, "loss": 0.1}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert load_tensors(tmp_path / "nothing") is None


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full_disk(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="no space"):
            write_whole(path, b"new and longer")
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
