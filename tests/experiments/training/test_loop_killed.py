"""A training killed at any moment, and begun again, ends in the weights of one left in peace."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.data.datasets import SAMPLE, load_sample
from experiments.training.checkpoints import load_tensors
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.loop import train_network
from tests.experiments.children import die_at, start, survived
from tests.experiments.training.trainings import SHORT, dropout_network


def train_in_steps(folder: Path, hyper: Hyperparameters) -> None:
    """A training that leaves a checkpoint after every step."""
    torch.set_num_threads(1)
    data = load_sample(SAMPLE)[0]
    train_network(hyper, dropout_network(), data, seed=3, device="cpu", folder=folder, checkpoint_seconds=0)


def train_and_die(folder: Path, hyper: Hyperparameters, fatal: int) -> None:
    die_at(fatal, folder)
    train_in_steps(folder, hyper)


def final_state(folder: Path) -> tuple[dict[str, bytes], list[float]]:
    tensors, facts = load_tensors(folder / "network.safetensors") or ({}, {"progress": {"losses": []}})
    assert tensors
    assert [path.name for path in folder.iterdir()] == ["network.safetensors"]
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, facts["progress"]["losses"]


@pytest.mark.slow
def test_death_at_any_write_changes_nothing(tmp_path: Path) -> None:
    hyper = replace(SHORT, epochs=1)
    assert survived(start(train_in_steps, tmp_path / "whole", hyper))
    deaths = 0
    while not survived(start(train_and_die, tmp_path / f"dies{deaths}", hyper, deaths)):
        assert survived(start(train_in_steps, tmp_path / f"dies{deaths}", hyper))
        assert final_state(tmp_path / f"dies{deaths}") == final_state(tmp_path / "whole"), deaths
        deaths += 1
    assert deaths >= 4 * 3, "three checkpoints and the network, each opened, flushed, renamed"
