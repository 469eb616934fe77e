"""`lates.write_report`: every kind of model and test set gets its page, or an error that says what came."""

import builtins
import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import lates
from lates.report import LATES, NETWORK, TEMPERATURE, read_predictions
from lates.report.findings import members_of
from tests.conftest import Problem
from tests.report.pages import Page, charts_in


def test_members_are_as_accurate_on_the_holdout_as_they_were_trained(
    problem: Problem, features: tuple[lates.Features, lates.Features], test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    calibrated = lates.calibrate(
        problem.model, train=problem.train, holdout=problem.holdout, budget=0.02, views=None, progress=False
    )
    holdout = features[1]
    expected = {
        name: float((trained.probe.logits(holdout.blocks[name]).argmax(1) == holdout.labels).double().mean())
        for name, trained in lates.train_probes(*features).items()
    }
    expected["head"] = float((holdout.logits.argmax(1) == holdout.labels).double().mean())
    assert set(calibrated.weights) > set(calibrated.member_names), "some have weight 0"
    calibrated.save(tmp_path / "saved")
    loaded = lates.load(tmp_path / "saved", problem.model)
    lates.write_report(loaded, test_sets["clean"], tmp_path / "r.html", progress=False)
    chart = charts_in((tmp_path / "r.html").read_text("utf-8"))["depth-0"]
    drawn = {row["name"]: row["accuracy"] for row in chart["data"]["values"]}
    assert drawn == loaded.holdout_accuracies == calibrated.holdout_accuracies == pytest.approx(expected, abs=0.002)


def test_report_warns_of_a_network_trained_further_but_not_of_a_cast_one(
    problem: Problem, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    model = copy.deepcopy(problem.model)
    calibrated = lates.calibrate(model, holdout=problem.holdout, blocks=[], progress=False)
    wide = [(images.double(), labels) for images, labels in test_sets["clean"]]
    lates.write_report(copy.deepcopy(calibrated).double(), wide, tmp_path / "cast", progress=False)
    assert "Caution" not in (tmp_path / "cast").read_text("utf-8")
    calibrated.save(tmp_path / "saved")
    with torch.no_grad():
        next(model.parameters()).add_(0.01)
    with warnings.catch_warnings(record=True):
        loaded = lates.load(tmp_path / "saved", model)
    for other in (calibrated, loaded):
        lates.write_report(other, test_sets["clean"], tmp_path / "trained", progress=False)
        assert "Caution: 1 tensor of this network differs" in (tmp_path / "trained").read_text("utf-8")


def test_report_of_one_set_has_no_section_on_shifts(
    calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    lates.write_report(calibrated, test_sets["clean"], tmp_path / "plain.html", progress=False)
    html = (tmp_path / "plain.html").read_text("utf-8")
    assert "Under distribution shift" not in html
    assert "<title>ResidualNetwork, 10 classes</title>" in html


def test_report_is_reproducible_from_its_seed(problem: Problem, test_sets: dict[str, DataLoader], tmp_path: Path) -> None:
    sampled = lates.mc_dropout(problem.model, samples=3)
    calibrated = lates.calibrate(sampled, train=problem.train, holdout=problem.holdout, views=None, progress=False)
    for name in ("one", "two"):
        lates.write_report(calibrated, test_sets["clean"], tmp_path / name, progress=False)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert "mean of 3 dropout samples" in (tmp_path / "one").read_text("utf-8")


def test_report_of_an_ensemble_has_a_picture_per_network(
    problem: Problem, ensemble: list[nn.Module], test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    calibrated = lates.calibrate(ensemble, train=problem.train, holdout=problem.holdout, views=None, progress=False)
    predicted = read_predictions(calibrated, {"clean": test_sets["clean"]})["clean"]
    with torch.no_grad():
        torch.testing.assert_close(
            predicted.logits[LATES].softmax(1), calibrated(problem.images).softmax(1), atol=1e-5, rtol=1e-4
        )
        mean = torch.stack([model(problem.images).softmax(1) for model in ensemble]).mean(0)
    torch.testing.assert_close(predicted.logits[NETWORK].softmax(1), mean, atol=1e-5, rtol=1e-4)
    weights = calibrated.fit.temperature_weights
    with torch.no_grad():
        scaled = [(w * model(problem.images)).softmax(1) for w, model in zip(weights, ensemble, strict=True)]
    torch.testing.assert_close(predicted.logits[TEMPERATURE].softmax(1), torch.stack(scaled).mean(0), atol=1e-5, rtol=1e-4)
    lates.write_report(calibrated, test_sets["clean"], tmp_path / "ensemble.html", progress=False)
    html = (tmp_path / "ensemble.html").read_text("utf-8")
    assert {"contributions-0", "contributions-1", "depth-0", "depth-1"} <= set(charts_in(html))
    assert "ensemble of 2" in html
    assert [f"{one.network}/{one.name}" for one in members_of(calibrated)] == list(calibrated.weights)


def test_report_of_temperature_scaling_shows_two_methods(
    problem: Problem, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    scaled = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], progress=False)
    lates.write_report(scaled, test_sets, tmp_path / "scaled.html", progress=False)
    html = (tmp_path / "scaled.html").read_text("utf-8")
    assert [a["data-switch"] for _, a in Page(html).elements if "data-switch" in a] == [NETWORK, TEMPERATURE]
    assert "this is temperature scaling" in html


@pytest.mark.parametrize("rows", [1, 3])
def test_report_works_on_few_rows(calibrated: lates.CalibratedModel, problem: Problem, tmp_path: Path, rows: int) -> None:
    batch = (problem.images[:rows], problem.labels[:rows])
    lates.write_report(calibrated, {"one": [batch], "two": [batch]}, tmp_path / "few.html", progress=False)
    assert f" of {rows} test input" in (tmp_path / "few.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("change", "error", "words_of_it"),
    [
        ({"path": "absent/report.html", "test": {}}, FileNotFoundError, "there is no folder"),
        ({"path": "."}, IsADirectoryError, "it is a folder"),
        ({"class_names": ["a", "b"]}, ValueError, "2 class names came for 10 classes"),
        ({"class_names": ["a"] * 11}, ValueError, "11 class names came for 10 classes"),
        ({"test": {}}, ValueError, "No test set came"),
        ({"test": []}, ValueError, "yielded no batch"),
        ({"calibrated": nn.Linear(2, 2)}, TypeError, "calibrated came as Linear"),
    ],
)
def test_report_errors_name_the_input(
    calibrated: lates.CalibratedModel,
    test_sets: dict[str, DataLoader],
    tmp_path: Path,
    change: dict[str, Any],
    error: type[Exception],
    words_of_it: str,
) -> None:
    arguments: dict[str, Any] = {"calibrated": calibrated, "test": test_sets, "path": "report.html", **change}
    first, test, name = (arguments.pop(key) for key in ("calibrated", "test", "path"))
    with pytest.raises(error, match=words_of_it):
        lates.write_report(first, test, tmp_path / name, progress=False, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_report_names_a_missing_extra(
    calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, missing = builtins.__import__, "altair"

    def without_it(name: str, *rest: Any) -> Any:
        if name.startswith("lates.report.page"):
            raise ModuleNotFoundError(f"No module named '{missing}'", name=missing)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_it)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"\.\[report\]"):
        lates.write_report(calibrated, test_sets, tmp_path / "report.html", progress=False)
    missing = "another"
    with pytest.raises(ModuleNotFoundError, match="No module named 'another'"):
        lates.write_report(calibrated, test_sets, tmp_path / "report.html", progress=False)


def test_report_progress_counts_batches(
    calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    steps: list[tuple[str, int, int | None]] = []
    lates.write_report(calibrated, test_sets, tmp_path / "r.html", progress=lambda *step: steps.append(step))
    assert steps == [(f"reading {name}", done, 4) for name in test_sets for done in range(1, 5)]
