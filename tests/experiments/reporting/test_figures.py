"""Figures from invented results: all are drawn, what they show is what was measured, what is missing says so."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from PIL import Image

from experiments.data.corruptions import NAMES as NAMES_OF_CORRUPTIONS
from experiments.recipes import STRONG_NETWORKS
from experiments.reporting.figures import draw_figures, main
from experiments.reporting.figures.curves import draw_severity
from experiments.reporting.figures.networks import draw_clean
from experiments.reporting.figures.style import COLOURS, SHOWN, figure_style, save
from experiments.reporting.summaries import PAPER_TRAINING, Measured, mean_over_networks, read_measured, sets_of
from tests.experiments.reporting.synthetic import write_cell

NAMES = {
    f"{prefix}{name}"
    for prefix in ("", "paper_")
    for name in ("depth_cifar100", "depth_cifar10", "depth_imagenet", "clean", "severity", "corruptions")
}
PAPER = PAPER_TRAINING


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for seed in range(2):
        write_cell(folder, "in_distribution", "cifar100", "resnet18", seed)
    write_cell(folder, "in_distribution", "cifar100", "vgg16", 0)
    return folder


@pytest.fixture(scope="module")
def measured(results: Path) -> tuple[Measured, ...]:
    return read_measured(results)


def points(axes: Axes, method: str) -> np.ndarray:
    """[dots, 2] of a method"""
    colour = to_rgba(COLOURS[method])
    dots = [each for each in axes.collections if isinstance(each, PathCollection)]
    found = [each for each in dots if np.allclose(np.asarray(each.get_facecolor())[:1], colour)]
    return np.concatenate([np.asarray(each.get_offsets(), dtype=float) for each in found])


def texts(axes: Axes) -> list[str]:
    return [text.get_text().strip() for text in axes.texts]


def test_every_figure_is_written_twice_and_is_not_blank(results: Path, tmp_path: Path) -> None:
    settings = dict(mpl.rcParams)
    assert main([f"--results={results}", f"--out={tmp_path}"]) == 0
    assert dict(mpl.rcParams) == settings
    drawn = NAMES - {"paper_depth_cifar10", "paper_depth_imagenet"}  # nothing of them was run
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    for path in tmp_path.glob("*.png"):
        with Image.open(path) as image:
            assert min(image.size) > 300
            assert len(image.convert("RGB").resize((200, 100)).getcolors(20_000) or ()) > 20


def test_without_results_every_panel_says_not_run() -> None:
    figures = draw_figures(())
    assert figures.keys() == NAMES
    for name in NAMES:
        assert all("not run" in texts(axes) for axes in figures[name].axes), name
    assert len(figures["depth_cifar100"].axes) == 2 * len(STRONG_NETWORKS), "and no empty place in the last line"


def test_the_same_numbers_give_the_same_bytes(measured: tuple[Measured, ...], tmp_path: Path) -> None:
    with figure_style():
        for name in ("one", "other"):
            save(draw_clean(measured, PAPER), tmp_path, name)
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"other.{kind}").read_bytes()


def test_every_trained_network_is_a_dot_of_its_own(measured: tuple[Measured, ...]) -> None:
    figure = draw_clean(measured, PAPER)
    axes, title = figure.axes[0], figure.get_suptitle()
    expected = [each.mean("temperature", "nll") - each.mean("sms", "nll") for each in measured]
    assert sorted(points(axes, "sms")[:, 1]) == pytest.approx(sorted(expected))
    assert "Not run: VGG19, ResNet50, WRN-28-10" in title
    shown = [method for method in SHOWN[PAPER] if method != "temperature"]
    places = [round(float(x), 6) for method in shown for x in np.unique(points(axes, method)[:, 0])]
    assert len(places) == len(set(places)), "no two methods stand at one place"


def test_severity_shows_gains_over_temperature_with_bars_over_architectures(measured: tuple[Measured, ...]) -> None:
    axes = draw_severity(measured, PAPER).axes[0]
    assert len(points(axes, "sms")) == 5, "rivals too"
    sets = sets_of(NAMES_OF_CORRUPTIONS, (1,))
    least = [mean_over_networks(measured, "cifar100", method, "nll", sets) for method in ("temperature", "lates_none_1")]
    assert points(axes, "lates_none_1")[0, 1] == pytest.approx(least[0] - least[1])
    bars = [each for each in axes.collections if isinstance(each, LineCollection)]
    assert len(bars) == len(axes.collections) - len(bars), "one for each method"


def test_of_one_architecture_severity_has_no_bars(measured: tuple[Measured, ...]) -> None:
    axes = draw_severity([each for each in measured if each.cell.network == "resnet18"], PAPER).axes[0]
    assert axes.collections
    assert not any(isinstance(each, LineCollection) for each in axes.collections)
