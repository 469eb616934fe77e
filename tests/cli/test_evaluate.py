"""`lates evaluate` measures what the library measures, and only the network that was calibrated."""

from pathlib import Path

import numpy as np
import pytest
import torch

import lates
from lates.report import read_predictions
from tests.cli.commands import CALIBRATION, calibrate, error_of, gathered, results_of, run, sources, their
from tests.cli_problem import Folder


def test_evaluate_measures_network_temperature_and_lates_on_every_test_set(folder: Folder) -> None:
    calibrate(folder)
    sets = results_of("evaluate", CALIBRATION, *sources(folder))["sets"]
    network, loaders = their(folder)
    calibrated = lates.load(CALIBRATION, network)
    assert [(one["name"], one["rows"], one["classes"]) for one in sets] == [("plain", 500, 4), ("noisy", 400, 4)]
    for one in sets:
        logits, labels = gathered(network, loaders["test"][one["name"]])
        cooled = logits * calibrated.fit.temperature_weights[0]
        stacked, _ = gathered(calibrated, loaders["test"][one["name"]])
        for method, values in (("network", logits), ("temperature", cooled), ("lates", stacked)):
            summary = lates.metrics.summary(values, labels)
            for metric in ("accuracy", "nll", "brier", "ece"):
                found = one["measured"][method][metric]
                assert found["value"] == pytest.approx(summary[metric], abs=1e-5)
                assert found["low"] <= found["value"] <= found["high"]
            assert one["auc"][method] == pytest.approx(summary["auc"], abs=1e-5)
            assert one["ece_floor"][method] == pytest.approx(summary["ece_floor"], abs=1e-4)
        gain = one["differences"]["lates"]["temperature"]["nll"]["value"]
        assert gain == pytest.approx(lates.metrics.nll(stacked, labels) - lates.metrics.nll(cooled, labels), abs=1e-5)


def test_evaluate_prints_a_table_of_80_columns(folder: Folder) -> None:
    calibrate(folder)
    lines = run("evaluate", CALIBRATION, *sources(folder)).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"plain, 500 rows, 4 classes", "noisy, 400 rows, 4 classes"} <= set(lines)
    for method in ("network", "temperature", "LATES"):
        assert sum(line.startswith(f"  {method} ") for line in lines) == 2
    assert any(line.startswith("* better, ! worse than temperature beyond chance") for line in lines)


def test_evaluate_finds_thresholds_on_the_first_test_set_and_applies_them_to_all(folder: Folder) -> None:
    calibrate(folder)
    contents = results_of("evaluate", CALIBRATION, *sources(folder), "--risk", "60%")["selective"]
    network, loaders = their(folder)
    plain, noisy = (gathered(network, loader) for loader in loaders["test"].values())
    selector = lates.selective.fit_selector(*plain, risk=0.6)
    assert contents["network"]["threshold"] == pytest.approx(selector.threshold, abs=1e-6)
    assert contents["network"]["sets"]["noisy"]["coverage"] == pytest.approx(selector.measure(*noisy).coverage)
    lines = run("evaluate", CALIBRATION, *sources(folder), "--risk", "60%").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"plain, 450 rows that tested them", "noisy, 400 rows, the same thresholds"} <= set(lines)
    refused = run("evaluate", CALIBRATION, *sources(folder), "--risk", "5")
    assert refused.exit_code == 2
    assert "Did you mean 5 % = 0.05?" in " ".join(refused.stderr.replace("│", "").split())


@pytest.mark.parametrize(
    "command",
    [("evaluate",), ("report", "-o", "page.html"), ("export", "-o", "their.onnx"), ("export", "-o", "their.pt2")],
)
def test_commands_refuse_a_forgotten_checkpoint(folder: Folder, command: tuple[str, ...]) -> None:
    calibrate(folder)
    name, *output = command
    untrained = ["--model", folder.name("make_model"), "--data", folder.name("make_loaders")]
    printed = error_of(name, CALIBRATION, *output, *untrained)
    assert "weights differ from those it was calibrated with. Did you forget --checkpoint?" in printed
    assert [path.name for path in Path().iterdir()] == [CALIBRATION]


def test_evaluate_refuses_other_weights_unless_allowed(folder: Folder) -> None:
    calibrate(folder)
    state = torch.load(folder.weights, weights_only=True)
    torch.save({name: value + 1 for name, value in state.items()}, "later.pt")
    other = ["--model", folder.name("make_model"), "--data", folder.name("make_loaders"), "--checkpoint", "later.pt"]
    printed = error_of("evaluate", CALIBRATION, *other)
    assert "weights differ from those it was calibrated with. Is --checkpoint the same as then?" in printed
    allowed = run("evaluate", CALIBRATION, *other, "--other-weights")
    assert allowed.exit_code == 0, allowed.output
    assert allowed.stderr.startswith("Warning: 6 of 6 tensors of this network have other values")


def test_evaluate_takes_dropout_samples_and_intervals_from_the_seed(folder: Folder) -> None:
    dropout = sources(folder, model="make_dropout")
    run("calibrate", *dropout, "-o", CALIBRATION, "--blocks", "none")
    calibrated = lates.load(CALIBRATION, lates.mc_dropout(their(folder)[0], samples=3))
    loader = their(folder)[1]["test"]["plain"]
    found = results_of("evaluate", CALIBRATION, *dropout, "--seed", "7")["sets"][0]
    predictions = read_predictions(calibrated, {"plain": loader}, seed=7)["plain"]
    logits = predictions.logits["network"]
    expected = lates.metrics.bootstrap(lates.metrics.nll, logits, predictions.labels, draws=1000, seed=7)
    assert found["measured"]["network"]["nll"] == pytest.approx(vars(expected), abs=1e-9)


def test_evaluate_names_what_it_cannot_use(folder: Folder) -> None:
    calibrate(folder)
    np.savez("test.npz", logits=np.eye(4), labels=np.arange(4))
    for arguments, message in {
        (CALIBRATION, *sources(folder), "--device", "gpu"): "Error: --device gpu: not usable here (",
        (CALIBRATION, *sources(folder, data="make_holdout")): "gave holdout; this command needs test.",
        ("test.npz", "--fitted", CALIBRATION): f"Error: {CALIBRATION} calibrates a network; expected a file written by",
        (CALIBRATION,): "is a calibration. Pass its network and data too",
    }.items():
        assert message in error_of("evaluate", *arguments)
