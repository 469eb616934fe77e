"""The search for defaults and the timing of a calibration, as commands, on the sample in CIFAR-10's layout."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

import lates
from experiments.data.datasets import CIFAR, ImageSet, load_cifar, scale
from experiments.data.shifts import FAMILIES, shifted_sets
from experiments.data.splits import split_indices
from experiments.evaluation import search, timing
from experiments.evaluation.prepared import Batches
from experiments.reporting.shift_search import read_search
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


def test_search_writes_a_file_that_the_rule_reads(trained: Path) -> None:
    search.main(arguments(trained, "--only", "temperature", "temperature, robust hold-out", "none"))
    found = read_search(trained / "out")
    (network,) = found.networks.values()
    assert (network["network"], network["images"]) == ("cifar10-tiny_vgg-paper", 40)
    assert found.value("temperature", "clean", "nll") != found.value("temperature, robust hold-out", "clean", "nll")
    for part in ("clean", *FAMILIES, "shifted"):
        accuracies = [found.value(name, part, "accuracy") for name in ("temperature", "temperature, robust hold-out")]
        assert accuracies[0] == accuracies[1], "a temperature changes no prediction"
    assert found.choose(["none"]) == "none"


def test_each_half_is_measured_by_the_fit_on_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    train, holdout = sample_data().train, sample_data().holdout
    halves = [holdout.select(torch.arange(half, len(holdout), 2)) for half in (0, 1)]
    mixing = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    fitted_on: list[ImageSet] = []

    class Scaled(torch.nn.Module):
        def __init__(self, factor: int) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.factor * images.mean((2, 3)) @ mixing

    def calibrate(network: torch.nn.Module, train: Batches, holdout: Batches, **options: object) -> Scaled:
        fitted_on.append(holdout.data)
        return Scaled(len(fitted_on))

    monkeypatch.setattr(lates, "calibrate", calibrate)
    outcomes = search.measure(torch.nn.Linear(3, 10), train, halves, {})
    assert fitted_on == halves
    logits = torch.cat([Scaled(1)(scale(halves[1].images)), Scaled(2)(scale(halves[0].images))])
    labels = torch.cat([halves[1].labels, halves[0].labels])
    sets = ["clean", *shifted_sets(scale(holdout.images[:2]), seed=0)]
    found = search.values(outcomes, search.parts_of(sets)["clean"])
    expected = [getattr(lates.metrics, name)(logits, labels) for name in search.METRICS]
    assert found == pytest.approx(expected, rel=1e-5)


def test_difference_from_a_reference_is_paired_over_images() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 400, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (400,), generator=generator)
    one, other = (search.Outcomes.of(factor * logits, labels) for factor in (3.0, 1.0))
    summary = search.summarise({"temperature": other, "none": one}, ["clean", "hue/40"])
    worse = summary["none"]["worse than"]["temperature"]["hue"]
    losses = one.nll[1] - other.nll[1]
    assert worse[0] == pytest.approx([float(losses.mean()), float(losses.std() / 20)])
    assert worse[2][0] == pytest.approx(lates.metrics.ece(3 * logits[1], labels) - lates.metrics.ece(logits[1], labels))
    assert worse[2][1] == pytest.approx(0.02, abs=0.015)
    assert worse[3] == [0, 0]


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
