"""The search for defaults and the timing of a calibration, as commands, on the sample in CIFAR-10's layout."""

import csv
import json
from pathlib import Path
from statistics import mean
from types import ModuleType

import pytest
import torch

import lates
from experiments.data.datasets import CIFAR, ImageSet, load_cifar, scale
from experiments.data.splits import split_indices
from experiments.evaluation import search, timing
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.loop import train_network
from experiments.training.networks import build_network
from tests.experiments.data.cifar_files import write_cifar10
from tests.experiments.sample import sample_data


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CIFAR-10's files in `data` and a small network, trained a little, in `run`."""
    folder = tmp_path_factory.mktemp("search")
    write_cifar10(folder / "data")
    available, _ = load_cifar(CIFAR["cifar10"], folder / "data")
    split = split_indices(available.labels, train_fraction=0.9, holdout_fraction=0.1, seed=0)
    torch.manual_seed(0)
    hyper = Hyperparameters(epochs=2, batch=40, rate=0.05, weight_decay=5e-4)
    train_network(
        hyper, build_network("tiny_vgg", 10), available.select(split.train), seed=0, device="cpu", folder=folder / "run"
    )
    return folder


def arguments(folder: Path, *more: str) -> list[str]:
    known = ["--network", "tiny_vgg", "--dataset", "cifar10", "--data", str(folder / "data"), "--device", "cpu"]
    return [*known, "--run", str(folder / "run"), "--out", str(folder / "out"), *more]


def test_the_search_judges_the_candidates_asked_for(trained: Path) -> None:
    search.main(arguments(trained, "--only", "temperature", "jitter x 2, both hold-outs"))
    place = trained / "out" / "cifar10-tiny_vgg-s0"
    with (place / "candidates.csv").open(newline="") as text:
        rows = {row["candidate"]: row for row in csv.DictReader(text)}
    assert list(rows) == ["temperature", "temperature, both hold-outs", "views jitter x 2, both hold-outs"]
    assert float(rows["temperature"]["parameters"]) == 0
    assert rows["temperature"]["nll"] != rows["temperature, both hold-outs"]["nll"]
    assert rows["temperature"]["accuracy"] == rows["temperature, both hold-outs"]["accuracy"]
    facts = json.loads((place / "facts.json").read_text())
    assert facts["split"]
    assert facts["settings"]["matmul_precision"] == "highest", "as in every evaluation"


def test_a_candidate_is_judged_on_the_other_half_and_both_ways_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shifted score is the mean over the shifts."""
    train, holdout = sample_data().train, sample_data().holdout
    halves = [holdout.select(torch.arange(half, len(holdout), 2)) for half in (0, 1)]
    mixing = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    chosen_on: list[ImageSet] = []

    class Scaled(torch.nn.Module):
        def __init__(self, way: int) -> None:
            super().__init__()
            self.way, self.added_parameters = way, 10 * way

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.way * images.mean((2, 3)) @ mixing

    def calibrate(network: torch.nn.Module, train: ImageSet, holdout: ImageSet, options: search.Options) -> Scaled:
        chosen_on.append(holdout)
        return Scaled(len(chosen_on))

    monkeypatch.setattr(search, "calibrate_with", calibrate)
    scores = search.judge(torch.nn.Linear(3, 10), train, halves, {})
    assert chosen_on == halves
    for name in search.JUDGED:
        metric, plain, shifted = getattr(lates.metrics, name), [], []
        for way, other in enumerate(reversed(halves), start=1):
            images = scale(other.images)
            plain.append(metric(Scaled(way)(images), other.labels))
            shifted += [metric(Scaled(way)(shift(images)), other.labels) for shift in search.SHIFTS.values()]
        assert scores[name] == pytest.approx(mean(plain), rel=1e-5)
        assert scores[f"shifted_{name}"] == pytest.approx(mean(shifted), rel=1e-5)
    assert scores["parameters"] == pytest.approx(15 / 40)


def test_changes_to_the_papers_recipe_end_in_the_default(trained: Path) -> None:
    search.main(arguments(trained, "--only", "paper", "views flip"))
    with (trained / "out" / "cifar10-tiny_vgg-s0" / "candidates.csv").open(newline="") as text:
        losses = {row["candidate"]: row["nll"] for row in csv.DictReader(text)}
    assert list(losses)[1:] == ["paper", *(f"paper … {change}" for change in search.FROM_PAPER)]
    assert losses["paper … a prior"] == losses["views flip x 2"] != losses["paper"]
    assert len(set(losses.values())) == len(losses) - 1


def test_timing_tells_seconds_of_epochs_and_calibrations(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "EPOCHS", 3)
    timing.main(arguments(trained))
    found = timing.read_timing(trained / "out" / "cifar10-tiny_vgg" / "timing.json")
    assert (found.recipe_epochs, len(found.epochs), len(found.calibrations)) == (200, 3, 3)
    assert min(found.epochs + found.calibrations) > 0
    assert f"{100 * found.share:.2f} %" in capsys.readouterr().out


@pytest.mark.parametrize("command", [search, timing])
def test_without_a_trained_network_it_is_said_where_to_get_one(trained: Path, command: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"nowhere holds no trained network; run python -m experiments\.train"):
        command.main([*arguments(trained), "--run", str(trained / "nowhere")])


@pytest.mark.parametrize("name", search.SHIFTS)
def test_shifts_keep_shape_and_range_and_change_images(name: str) -> None:
    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    shifted = search.SHIFTS[name](images)
    assert shifted.shape == images.shape
    assert shifted.min() >= 0
    assert shifted.max() <= 1 + 1e-6
    assert (shifted - images).abs().mean() > 0.01
    assert torch.equal(images, before)


def test_shifts_are_what_they_say() -> None:
    grey = torch.full((4, 3, 32, 32), 0.4)
    for name in ("rotate", "shrink", "hue"):
        torch.testing.assert_close(search.SHIFTS[name](grey), grey, atol=1e-5, rtol=0)
    covered = (search.occlude(grey) != grey).float().mean(dim=(1, 2, 3))
    torch.testing.assert_close(covered, torch.full((4,), 100 / 1024))
    colours = 0.4 + 0.1 * torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    turned = colours
    for _ in range(6):
        turned = search.turn_hue(turned)
    torch.testing.assert_close(turned, colours, atol=1e-5, rtol=0)
