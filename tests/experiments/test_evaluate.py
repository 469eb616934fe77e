"""Every method on every set, measured as the library measures; nothing written when the time is up."""

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lates
from experiments.corruptions import corrupt
from experiments.dropout import OFF, ON, STACKS, predict_draws
from experiments.evaluate import evaluate_cell
from experiments.images import BLOCKED_METHODS, IMAGE_METRICS
from experiments.material import Batches, OutOfTimeError, as_inputs
from experiments.measuring import CorruptedSets, measure_sets
from experiments.methods import METHODS
from experiments.networks import WideResNet
from experiments.provenance import CORRUPTION_SEED
from experiments.results import METRICS, Cell, CellResults, read_results, write_results
from experiments.training import measure_accuracy
from tests.experiments.sample import sample_data, tiny_network, train_on_sample

CELL = Cell("smoke", "cifar10_600", "tiny_vgg", 0, 0.7, 0.3)
POOL = ThreadPoolExecutor(2)


@pytest.fixture(scope="module")
def heard() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def results(sets: CorruptedSets, heard: list[tuple[str, int, int]]) -> CellResults:
    def hear(stage: str, done: int, total: int) -> None:
        heard.append((stage, done, total))

    network = tiny_network("tiny_vgg")
    return evaluate_cell(CELL, network, sample_data(), sets, pool=POOL, training_seconds=12.5, report=hear)


def test_there_is_a_row_for_every_method_and_set(results: CellResults) -> None:
    expected = [(method, name) for method in METHODS for name in ("clean", "contrast-5", "gaussian_noise-5")]
    assert [(row.method, row.set) for row in results.rows] == expected
    assert all(tuple(row.metrics) == METRICS for row in results.rows)
    on_clean_alone = {"auc_best_temperature"}
    for row in results.rows:
        missing = {name for name, value in row.metrics.items() if not math.isfinite(value)}
        assert missing == (set() if row.set == "clean" else on_clean_alone)


def test_the_networks_row_is_the_network(results: CellResults) -> None:
    network, test = tiny_network("tiny_vgg"), sample_data().test
    clean, noisy = (row for row in results.rows if row.method == "network" and row.set != "contrast-5")
    assert clean.metrics["accuracy"] == pytest.approx(measure_accuracy(network, test))
    with torch.no_grad():
        logits = network(as_inputs(corrupt(test.images, "gaussian_noise", 5, CORRUPTION_SEED)))
    assert noisy.metrics["nll"] == pytest.approx(lates.metrics.nll(logits, test.labels), rel=1e-5)


def test_temperature_changes_no_prediction_and_lates_does(results: CellResults) -> None:
    accuracy = {row.method: row.metrics["accuracy"] for row in results.rows if row.set == "clean"}
    assert accuracy["network"] == accuracy["temperature"] == accuracy["temperature_jittered_holdout"]
    assert accuracy["lates_none_all"] != accuracy["network"]


def test_facts_say_under_what_the_numbers_were_made(results: CellResults) -> None:
    facts = results.facts
    assert facts["split"] == sample_data().split
    assert facts["rows"] == {"train": 280, "holdout": 120, "test": 200}
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["settings"]["default"]["grid"] == lates.DEFAULT.grid
    assert facts["settings"]["matmul_precision"] == "highest"
    assert facts["seconds"]["training"] == 12.5
    assert all(facts["seconds"][stage] > 0 for stage in ("extraction_shift", "probes_shift", "evaluation"))
    assert list(facts["probe_accuracy_paper"]) == list(facts["probe_accuracy"])
    assert list(facts["probe_accuracy"]) == ["features.2", "features.6", "features.10", "features.13", "head"]
    assert facts["parameters"] == sum(p.numel() for p in tiny_network("tiny_vgg").parameters())
    # 3x3 convolutions at 32², 16², 8², 8², and the head: two operations for each multiplication
    multiplications = 9 * (3 * 8 * 1024 + 8 * 16 * 256 + 16 * 32 * 64 + 32 * 32 * 64) + 320
    assert facts["flops"] == 2 * multiplications


def test_facts_describe_each_method(results: CellResults) -> None:
    methods = results.facts["methods"]
    assert list(methods) == list(METHODS)
    assert methods["network"]["parameters"] == methods["temperature"]["flops"] == 0
    dense = methods["lates_none_all"]
    votes = [name for name, weight in dense["weights"].items() if weight > 0 and name != "head"]
    widths = {"features.2": 32, "features.6": 64, "features.10": 128, "features.13": 128}
    parameters = sum(10 * widths[name] + 10 for name in votes)
    assert dense["parameters"] == pytest.approx(parameters / results.facts["parameters"])
    assert dense["flops"] == pytest.approx(2 * sum(10 * widths[name] for name in votes) / results.facts["flops"])
    assert dense["ranks"] == dict.fromkeys(votes, 10)
    seconds = results.facts["seconds"]
    assert methods["lates_shift_1"]["seconds"] >= seconds["extraction_shift"] + seconds["probes_shift"]


def test_blocks_of_images_are_kept_for_the_methods_that_are_compared(results: CellResults) -> None:
    methods = sorted(BLOCKED_METHODS & METHODS.keys())
    assert list(results.blocks) == [(method, group) for method in methods for group in ("clean", "like_jitter")]
    for row in results.rows:
        if row.set == "clean" and row.method in methods:
            means = results.blocks[row.method, "clean"].mean(axis=1)
            assert means == pytest.approx([row.metrics[metric] for metric in IMAGE_METRICS], abs=1e-6)


def test_progress_is_heard(results: CellResults, heard: list[tuple[str, int, int]]) -> None:
    fits, measures = [("fitting", 0, 1), ("fitting", 1, 1)], [("evaluating", k, 3) for k in (1, 2, 3)]
    assert heard == fits + measures


def test_results_survive_the_disk(results: CellResults, tmp_path: Path) -> None:
    read = read_results(write_results(tmp_path, results))
    assert [(row.method, row.set) for row in read.rows] == [(row.method, row.set) for row in results.rows]
    assert read.blocks.keys() == results.blocks.keys()
    for key, values in results.blocks.items():
        np.testing.assert_allclose(read.blocks[key], values, rtol=1e-5)
    assert read.facts["methods"] == json.loads(json.dumps(results.facts["methods"]))


def test_a_passed_deadline_stops_between_stages_and_between_sets(sets: CorruptedSets) -> None:
    past = time.monotonic() - 1
    with pytest.raises(OutOfTimeError, match="before the stage extraction_holdout"):
        evaluate_cell(CELL, tiny_network("tiny_vgg"), sample_data(), sets, pool=POOL, deadline=past)
    with pytest.raises(OutOfTimeError, match="after 0 of 3 test sets"):
        measure_sets(lambda images: {}, sets, POOL, past, lambda stage, done, total: None)


# MC dropout


@pytest.fixture(scope="module")
def dropout_network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        network = WideResNet(10, 1, 10, dropout=0.2)
    return train_on_sample(network)


@pytest.fixture(scope="module")
def dropped_out(dropout_network: nn.Module) -> CellResults:
    data = sample_data()
    cell = Cell("mc_dropout", "cifar10_600", "wide_resnet_10_1", 0, 0.7, 0.3, dropout=0.2)
    return evaluate_cell(cell, dropout_network, data, CorruptedSets(data.test, (), ()), pool=POOL)


def test_dropout_cells_hold_every_method_of_the_draws_and_some_with_dropout_off(dropped_out: CellResults) -> None:
    assert [(row.method, row.set) for row in dropped_out.rows] == [(name, "clean") for name in (*OFF, *ON)]
    assert list(dropped_out.facts["methods"]) == [*OFF, *ON]
    assert list(dropped_out.facts["probe_accuracy"]) == ["layer1.0", "layer2.0", "head"]
    assert dropped_out.blocks.keys() == {(name, "clean") for name in (*OFF, *ON)}


def test_facts_describe_each_method_of_the_draws(dropped_out: CellResults) -> None:
    methods, seconds = dropped_out.facts["methods"], dropped_out.facts["seconds"]
    assert methods["mcd"]["weights"] == methods["mcd"]["contributions"] == {"head": 1.0}
    assert methods["mcd"]["seconds"] == 0
    assert methods["mcd"]["flops"] == methods["mcd_temperature"]["flops"] == 0
    losses = [methods[name]["holdout_nll"] for name in ("mcd_lates", "mcd_temperature", "mcd")]
    assert losses == sorted(losses)
    for name in STACKS:
        assert 0 <= methods[name]["parameters"] <= 0.01
        assert sum(methods[name]["contributions"].values()) == pytest.approx(1)
        votes = [block for block, weight in methods[name]["weights"].items() if weight > 0 and block != "head"]
        assert list(methods[name]["ranks"]) == votes
        assert list(methods[name]["holdout_accuracies"]) == ["layer1.0", "layer2.0", "head"]
        assert methods[name]["seconds"] == seconds[name] > 0


def test_dropout_off_is_the_plain_network(dropout_network: nn.Module, dropped_out: CellResults) -> None:
    data = sample_data()
    accuracy = {row.method: row.metrics["accuracy"] for row in dropped_out.rows}
    assert accuracy["network"] == accuracy["temperature"] == measure_accuracy(dropout_network, data.test)
    nll = {row.method: row.metrics["nll"] for row in dropped_out.rows}
    assert nll["mcd"] != nll["network"]
    calibrated = lates.calibrate(
        dropout_network, train=Batches(data.train), holdout=Batches(data.holdout), progress=False
    )
    with torch.no_grad():
        logits = calibrated(as_inputs(data.test.images))
    assert nll["lates_shift_1"] == pytest.approx(lates.metrics.nll(logits, data.test.labels), rel=1e-4)


def test_rows_of_the_draws_are_the_librarys_calibrations(dropout_network: nn.Module, dropped_out: CellResults) -> None:
    """Ten draws of other masks come near; the methods are farther apart."""
    data, methods = sample_data(), dropped_out.facts["methods"]
    sampled = lates.mc_dropout(dropout_network, samples=10, seed=0)
    scaled = lates.calibrate(sampled, holdout=Batches(data.holdout), blocks=[], progress=False)
    assert methods["mcd_temperature"]["weights"] == pytest.approx(scaled.weights)
    stacked = lates.calibrate(
        sampled,
        train=Batches(data.train),
        holdout=Batches(data.holdout),
        views="shift",
        budget=0.01,
        progress=False,
    )
    assert methods["mcd_lates_shift"]["weights"] == pytest.approx(stacked.weights)
    assert methods["mcd_lates"]["weights"] != pytest.approx(stacked.weights)
    nll = {row.method: row.metrics["nll"] for row in dropped_out.rows}
    with torch.no_grad():
        expected = lates.metrics.nll(scaled(as_inputs(data.test.images)), data.test.labels)
    assert abs(nll["mcd_temperature"] - expected) < 0.5 * abs(nll["mcd_temperature"] - nll["mcd"])


def test_matrices_are_multiplied_in_full_whatever_training_left_behind(sets: CorruptedSets) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(OutOfTimeError):
            evaluate_cell(CELL, tiny_network("tiny_vgg"), sample_data(), sets, pool=POOL, deadline=0)
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_methods_share_their_draws(dropout_network: nn.Module) -> None:
    """LATES' row is what the calibrated model gives from the same seed, MC dropout's the mean of the heads; a stack that has
    drawn before makes no difference."""
    data = sample_data()
    stacked, other = (
        lates.calibrate(
            lates.mc_dropout(dropout_network, samples=3),
            train=Batches(data.train),
            holdout=Batches(data.holdout),
            budget=budget,
            progress=False,
        )
        for budget in (None, 0.01)
    )
    inputs, _ = next(iter(Batches(data.test)))

    def predicted(beta: float) -> dict[str, torch.Tensor]:
        other.generator.manual_seed(5)
        stacked.generator.manual_seed(6)
        return predict_draws({"other": other, "mcd_lates": stacked}, beta, inputs)

    ours = predicted(0.5)
    stacked.generator.manual_seed(5)
    with torch.no_grad():
        expected = stacked(inputs)
    torch.testing.assert_close(ours["mcd_lates"].softmax(1), expected.softmax(1), rtol=1e-4, atol=1e-6)
    sampled = lates.mc_dropout(dropout_network, samples=3)
    sampled.generator.manual_seed(5)
    with torch.no_grad():
        torch.testing.assert_close(ours["mcd"].softmax(1), sampled(inputs).softmax(1), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ours["mcd"], ours["mcd_temperature"], atol=1e-2)
    torch.testing.assert_close(predicted(1.0)["mcd_temperature"], ours["mcd"])
