"""The ensemble of a recipe's seeds: the mean of what its networks predict, each at its own temperature."""

from pathlib import Path

import pytest
import torch

import lates
from experiments.data.datasets import as_inputs
from experiments.runner.ensemble import run_ensembles
from experiments.runner.results import find_results, read_results
from experiments.training.checkpoints import load_tensors
from experiments.training.networks import build_network
from tests.experiments.runner.tiny_grid import folders_in, run_tiny
from tests.experiments.sample import sample_data, tiny_recipe


def test_an_ensemble_averages_probabilities_at_each_networks_own_temperature(tmp_path: Path) -> None:
    recipe, folders, cpu = tiny_recipe((0, 1)), folders_in(tmp_path), torch.device("cpu")
    run_tiny(tmp_path, seeds=(0,))
    assert run_ensembles(recipe, folders, cpu) == [], "of one network there is none"
    run_tiny(tmp_path, seeds=(0, 1))
    (path,) = run_ensembles(recipe, folders, cpu)
    assert run_ensembles(recipe, folders, cpu) == [], "it is done once"
    test, logs = sample_data().test, list[torch.Tensor]()
    for results in find_results(folders.results):
        if results.cell.recipe == "smoke":
            stored = load_tensors(folders.runs / results.cell.training / "network.safetensors")
            assert stored is not None
            network = build_network("tiny_vgg", 10).eval()
            network.load_state_dict(stored[0])
            beta = results.facts["methods"]["temperature"]["weights"]["head"]
            with torch.no_grad():
                logs.append((beta * network(as_inputs(test.images))).log_softmax(1))
    assert len(logs) == 2
    found = {name: metrics for (_, name), metrics in read_results(path).scores.items()}
    assert set(found) == {"clean", "contrast-1", "contrast-3", "contrast-5"}
    mean = torch.stack(logs).exp().mean(0).log()
    assert found["clean"]["nll"] == pytest.approx(lates.metrics.nll(mean, test.labels), rel=1e-5)
    assert read_results(path).facts["seeds"] == [0, 1]
