"""Every method on every set, measured as the library measures; nothing written when the time is up."""

import math
import time

import pytest
import torch
from torch import nn

import lates
from experiments.data.corruptions import corrupt
from experiments.data.datasets import as_inputs
from experiments.evaluation.clock import OutOfTimeError
from experiments.evaluation.dropout import OFF, ON, predict_draws
from experiments.evaluation.evaluate import Evaluation, evaluate_network
from experiments.evaluation.image_blocks import IMAGE_METRICS
from experiments.evaluation.measuring import CORRUPTION_SEED, METRICS, CorruptedSets, measure_sets
from experiments.evaluation.methods import METHODS
from experiments.evaluation.prepared import Batches
from experiments.training.networks import WideResNet
from tests.experiments.sample import accuracy_of, sample_data, tiny_network, train_on_sample


@pytest.fixture(scope="module")
def results(sets: CorruptedSets) -> Evaluation:
    return evaluate_network(tiny_network("tiny_vgg"), sample_data(), sets, seed=0, training_seconds=12.5)


def test_there_are_scores_of_every_method_and_set(results: Evaluation) -> None:
    expected = [(method, name) for method in METHODS for name in ("clean", "contrast-5", "gaussian_noise-5")]
    assert list(results.scores) == expected
    for (_, name), metrics in results.scores.items():
        assert tuple(metrics) == METRICS
        missing = {metric for metric, value in metrics.items() if not math.isfinite(value)}
        assert missing == (set() if name == "clean" else {"auc_best_temperature"})


def test_the_networks_row_is_the_network(results: Evaluation) -> None:
    network, test = tiny_network("tiny_vgg"), sample_data().test
    clean, noisy = (results.scores["network", name] for name in ("clean", "gaussian_noise-5"))
    assert clean["accuracy"] == pytest.approx(accuracy_of(network, test))
    with torch.no_grad():
        logits = network(as_inputs(corrupt(test.images, "gaussian_noise", 5, CORRUPTION_SEED)))
    assert noisy["nll"] == pytest.approx(lates.metrics.nll(logits, test.labels), rel=1e-5)


def test_facts_say_under_what_the_numbers_were_made(results: Evaluation) -> None:
    facts = results.facts
    assert facts["split"] == sample_data().split
    assert facts["rows"] == {"train": 280, "holdout": 120, "test": 200}
    assert facts["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert facts["settings"]["default"]["grid"] == lates.DEFAULT.grid
    assert facts["settings"]["matmul_precision"] == "highest"
    assert facts["seconds"]["training"] == 12.5
    assert all(facts["seconds"][stage] > 0 for stage in ("extraction_shift", "probes_shift", "evaluation"))
    assert list(facts["probe_accuracy"]) == ["features.2", "features.6", "features.10", "features.13", "head"]
    assert facts["parameters"] == sum(p.numel() for p in tiny_network("tiny_vgg").parameters())
    # 3x3 convolutions at 32², 16², 8², 8², and the head: two operations for each multiplication
    multiplications = 9 * (3 * 8 * 1024 + 8 * 16 * 256 + 16 * 32 * 64 + 32 * 32 * 64) + 320
    assert facts["flops"] == 2 * multiplications


def test_facts_describe_each_method(results: Evaluation) -> None:
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


def test_blocks_of_images_are_kept_for_every_method(results: Evaluation) -> None:
    assert list(results.blocks) == [(method, group) for method in sorted(METHODS) for group in ("clean", "like_jitter")]
    for method in METHODS:
        means = results.blocks[method, "clean"].mean(axis=1)
        expected = [results.scores[method, "clean"][metric] for metric in IMAGE_METRICS]
        assert means == pytest.approx(expected, abs=1e-6)


def test_a_passed_deadline_stops_between_stages_and_between_sets(sets: CorruptedSets) -> None:
    past = time.monotonic() - 1
    with pytest.raises(OutOfTimeError, match="before the stage extraction_holdout"):
        evaluate_network(tiny_network("tiny_vgg"), sample_data(), sets, seed=0, deadline=past)
    with pytest.raises(OutOfTimeError, match="after 0 of 3 test sets"):
        measure_sets(lambda images: {}, sets, past)


# MC dropout


@pytest.fixture(scope="module")
def dropout_network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        network = WideResNet(10, 1, 10, dropout=0.2)
    return train_on_sample(network)


@pytest.fixture(scope="module")
def dropped_out(dropout_network: nn.Module) -> Evaluation:
    data = sample_data()
    return evaluate_network(dropout_network, data, CorruptedSets(data.test, (), ()), seed=0, mc_dropout=True)


def test_dropout_cells_hold_every_method_of_the_draws_and_some_with_dropout_off(dropped_out: Evaluation) -> None:
    assert list(dropped_out.scores) == [(name, "clean") for name in (*OFF, *ON)]
    assert list(dropped_out.facts["methods"]) == [*OFF, *ON]
    assert list(dropped_out.facts["probe_accuracy"]) == ["layer1.0", "layer2.0", "head"]
    assert dropped_out.blocks.keys() == {(name, "clean") for name in (*OFF, *ON)}


def test_facts_describe_each_method_of_the_draws(dropped_out: Evaluation) -> None:
    methods = dropped_out.facts["methods"]
    assert methods["mcd"]["weights"] == methods["mcd"]["contributions"] == {"head": 1.0}
    assert methods["mcd"]["flops"] == methods["mcd_temperature"]["flops"] == 0
    losses = [methods[name]["holdout_nll"] for name in ("mcd_lates", "mcd_temperature", "mcd")]
    assert losses == sorted(losses)
    for name in ("mcd_lates", "mcd_lates_shift"):
        assert 0 <= methods[name]["parameters"] <= 0.01
        assert sum(methods[name]["contributions"].values()) == pytest.approx(1)
        votes = [block for block, weight in methods[name]["weights"].items() if weight > 0 and block != "head"]
        assert list(methods[name]["ranks"]) == votes
        assert list(methods[name]["holdout_accuracies"]) == ["layer1.0", "layer2.0", "layer3.0", "head"]


def test_dropout_off_is_the_plain_network(dropout_network: nn.Module, dropped_out: Evaluation) -> None:
    accuracy = {method: metrics["accuracy"] for (method, _), metrics in dropped_out.scores.items()}
    assert accuracy["network"] == accuracy["temperature"]
    assert accuracy["network"] == pytest.approx(accuracy_of(dropout_network, sample_data().test))


def test_rows_of_the_draws_are_the_librarys_calibrations(dropout_network: nn.Module, dropped_out: Evaluation) -> None:
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
        passes=2,
        budget=0.01,
        progress=False,
    )
    assert methods["mcd_lates_shift"]["weights"] == pytest.approx(stacked.weights)
    assert methods["mcd_lates"]["weights"] != pytest.approx(stacked.weights)
    nll = {method: metrics["nll"] for (method, _), metrics in dropped_out.scores.items()}
    with torch.no_grad():
        expected = lates.metrics.nll(scaled(as_inputs(data.test.images)), data.test.labels)
    assert abs(nll["mcd_temperature"] - expected) < 0.5 * abs(nll["mcd_temperature"] - nll["mcd"])


def test_methods_share_their_draws(dropout_network: nn.Module) -> None:
    """Each prediction is what its model gives from the first model's seed, whatever it has drawn before."""
    sampled, holdout = lates.mc_dropout(dropout_network, samples=3), Batches(sample_data().holdout)
    scaled = lates.calibrate(sampled, holdout=holdout, blocks=[], progress=False)
    sampled.generator.manual_seed(5)
    scaled.generator.manual_seed(6)
    ours = predict_draws({"mcd": sampled, "scaled": scaled}, sample_data().test)
    for name, model in (("mcd", sampled), ("scaled", scaled)):
        model.generator.manual_seed(5)
        with torch.no_grad():
            expected = torch.cat([model(inputs) for inputs, _ in Batches(sample_data().test)])
        torch.testing.assert_close(ours[name], expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ours["mcd"], ours["scaled"], atol=1e-2)
