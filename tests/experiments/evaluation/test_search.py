"""The search for defaults and the timing of a calibration, as commands, on the sample in CIFAR-10's layout."""

import hashlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

import lates
from experiments.data.datasets import CIFAR, as_inputs, load_cifar, scale
from experiments.data.files import DamagedError
from experiments.data.shifts import FAMILIES, shifted_sets
from experiments.data.splits import split_indices
from experiments.evaluation import search, timing
from experiments.evaluation.methods import METHODS
from experiments.evaluation.prepared import PAPER_BLOCKS, Batches
from experiments.reporting.tables.searches import THIRD_ROUND, read_search
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
    search.main(arguments(trained, "--only", "temperature", "temperature, robust hold-out", "shift"))
    found = read_search(trained / "out")
    (network,) = found.networks.values()
    assert (network["network"], network["images"]) == ("cifar10-tiny_vgg-paper", 40)
    assert found.value("temperature", "clean", "nll") != found.value("temperature, robust hold-out", "clean", "nll")
    for part in ("clean", *FAMILIES, "shifted"):
        accuracies = [found.value(name, part, "accuracy") for name in ("temperature", "temperature, robust hold-out")]
        assert accuracies[0] == accuracies[1], "a temperature changes no prediction"
    assert found.choose(["shift"]) == "shift"
    (written,) = (trained / "out").glob("*.json")
    written.write_bytes(written.read_bytes().replace(b'"images": 40', b'"images": 41'))
    with pytest.raises(DamagedError, match=r"paper\.json is damaged .* Run `python -m experiments search` again"):
        read_search(trained / "out")


def test_released_weights_are_measured_on_halves_of_the_test_images(trained: Path) -> None:
    network = build_network("resnet20", 10)
    old = {f"module.{name}": values for name, values in network.state_dict().items() if "tracked" not in name}
    theirs = {"stem.0": "conv1", "stem.1": "bn1", "head": "linear"}
    for ours, name in theirs.items():
        old = {key.replace(f"module.{ours}.", f"module.{name}."): values for key, values in old.items()}
    torch.save({"state_dict": old}, file := trained / "released.th")
    known = ["--network", "resnet20", "--dataset", "cifar10", "--data", str(trained / "data"), "--device", "cpu"]
    search.main([*known, "--weights", str(file), "--out", str(trained / "released"), "--only", "temperature"])
    (found,) = read_search(trained / "released").networks.values()
    _, test = load_cifar(CIFAR["cifar10"], trained / "data")
    assert (found["images"], found["weights"]) == (len(test) // 2, hashlib.sha256(file.read_bytes()).hexdigest())
    with pytest.raises(SystemExit):  # how long it was trained is not known
        timing.main([*known, "--weights", str(file), "--out", str(trained / "timed")])
    file.write_bytes(b"no state dict")
    with pytest.raises(ValueError, match=r"released\.th holds no state dict that torch\.save wrote"):
        search.main([*known, "--weights", str(file), "--out", str(trained / "released"), "--only", "temperature"])


def test_candidates_are_those_of_the_third_round() -> None:
    robust = {name for name in search.CANDIDATES if name.startswith("robust")}
    assert robust == set(THIRD_ROUND)
    assert set(search.CANDIDATES.values()) <= METHODS.keys()


def test_candidates_are_what_calibrate_gives() -> None:
    data, network = sample_data(), build_network("tiny_vgg", 10).eval()
    test = lates.extract(network, Batches(data.test))
    candidates = {
        "temperature, robust hold-out": {"blocks": [], "holdout_views": "robust"},
        "shift": {"views": "shift", "passes": 2},
        "robust, capped, rescaled": {"expect_shift": True},
        "robust, last": {"settings": lates.DEFAULT},
        "robust, robust hold-out": {"holdout_views": "robust"},
    }
    (fitted,) = search.calibrate_all(network, data.train, [data.holdout], candidates)
    for name, options in candidates.items():
        loaders = {"train": Batches(data.train), "holdout": Batches(data.holdout)}
        expected = lates.calibrate(network, **loaders, progress=False, **{"settings": PAPER_BLOCKS, **options})
        torch.testing.assert_close(fitted[name](test), expected.logits_of(test))


def test_each_half_is_measured_by_the_fit_on_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    holdout = sample_data().holdout
    halves = [holdout.select(torch.arange(half, len(holdout), 2)) for half in (0, 1)]
    network = build_network("tiny_vgg", 10).eval()

    fitted = [{"scaled": lambda features, factor=factor: factor * features.logits} for factor in (1, 2)]
    monkeypatch.setattr(search, "calibrate_all", lambda network, train, holdouts, candidates: fitted)
    outcomes = search.measure(network, holdout, halves, ["scaled"])["scaled"]
    with torch.no_grad():
        logits = torch.cat([factor * network(as_inputs(halves[2 - factor].images)) for factor in (1, 2)])
    labels = torch.cat([halves[1].labels, halves[0].labels])
    sets = ["clean", *shifted_sets(scale(holdout.images[:2]), seed=0)]
    found = outcomes.values(search.parts_of(sets)["clean"])
    expected = [getattr(lates.metrics, name)(logits, labels) for name in search.METRICS]
    assert found == pytest.approx(expected, rel=1e-5)


def test_difference_from_a_reference_is_paired_over_images() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 400, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (400,), generator=generator)
    one, other = (search.Outcomes.of(factor * logits, labels) for factor in (3.0, 1.0))
    summary = search.summarise({"temperature": other, "none": one}, ["clean", "hue/40"])
    worse = summary["none"]["worse than"]["temperature"]["hue"]
    losses = (one.scores - other.scores)[0, 1]
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
    with pytest.raises(SystemExit, match=r"nowhere holds no trained network; `python -m experiments run`"):
        command.main([*arguments(trained), "--run", str(trained / "nowhere")])
