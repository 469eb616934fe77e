"""A training killed at any moment, and begun again, ends in the weights of one left in peace."""

import random
import shutil
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch

from experiments.data.datasets import SAMPLE, load_sample
from experiments.training.checkpoints import load_tensors
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.loop import train_network
from tests.experiments.children import PROCESSES, die_at, start, survived
from tests.experiments.training.trainings import SHORT, dropout_network


def train_in_steps(folder: Path, hyper: Hyperparameters, began: Event | None = None) -> None:
    """A training that leaves a checkpoint after every step."""
    torch.set_num_threads(1)
    data = load_sample(SAMPLE)[0]
    network = dropout_network()
    if began is not None:
        began.set()
    train_network(hyper, network, data, seed=3, device="cpu", folder=folder, checkpoint_seconds=0)


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
    assert deaths >= 4 * 4, "three checkpoints and the network, each opened, flushed, renamed, its folder flushed"


@pytest.mark.slow
def test_death_at_twenty_moments_changes_nothing(tmp_path: Path) -> None:
    hyper, moments = replace(SHORT, epochs=25), random.Random(0)
    assert survived(start(train_in_steps, tmp_path / "whole", hyper))
    _, facts = load_tensors(tmp_path / "whole" / "network.safetensors") or ({}, {})
    step_seconds = facts["progress"]["seconds"] / facts["progress"]["steps"]
    deaths = furthest = 0
    while deaths < 20:
        began = PROCESSES.Event()
        process = start(train_in_steps, tmp_path / "dies", hyper, began)
        assert began.wait(60)
        process.join(moments.uniform(0, 6) * step_seconds)
        process.kill()
        if survived(process):  # on a machine that has become quicker
            assert final_state(tmp_path / "dies") == final_state(tmp_path / "whole")
            shutil.rmtree(tmp_path / "dies")
        else:
            deaths += 1
            _, facts = load_tensors(tmp_path / "dies" / "checkpoint.safetensors") or ({}, {"progress": {"step": 0}})
            furthest = max(furthest, facts["progress"]["step"])
    assert furthest > 0
    assert survived(start(train_in_steps, tmp_path / "dies", hyper))
    assert final_state(tmp_path / "dies") == final_state(tmp_path / "whole")
