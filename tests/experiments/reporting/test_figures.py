"""Figures from invented results: all are drawn, what they show is what was measured, what is missing says so."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image

from experiments.reporting import paper
from experiments.reporting.figures import draw_figures, main
from experiments.reporting.figures.bars import draw_bars
from experiments.reporting.figures.curves import draw_low_data, draw_severity
from experiments.reporting.figures.shift import draw_scatter
from experiments.reporting.figures.style import COLOURS, figure_style, save
from experiments.reporting.summaries import Measured, mean_over_networks, read_measured
from tests.experiments.reporting.synthetic import write_cell

NAMES = {
    "depth_cifar100", "depth_cifar10", "depth_imagenet", "in_distribution", "low_data", "holdout_size", "severity", "scatter",
    "corruptions", "budget",
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for seed in range(2):
        write_cell(folder, "in_distribution", "cifar100", "resnet18", seed)
    write_cell(folder, "low_data", "cifar100", "resnet18", 0, train_fraction=0.25, sets=["clean"])
    write_cell(
        folder, "holdout_size", "cifar100", "resnet18", 0, train_fraction=0.98, holdout_fraction=0.02, sets=["clean"]
    )
    return folder


@pytest.fixture(scope="module")
def measured(results: Path) -> tuple[Measured, ...]:
    return read_measured(results)


def heights(axes: Axes) -> list[float]:
    return [patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle)]


def texts(axes: Axes) -> list[str]:
    return [text.get_text().strip() for text in axes.texts]


def test_every_figure_is_written_twice_and_is_not_blank(results: Path, tmp_path: Path) -> None:
    settings = dict(mpl.rcParams)
    assert main([f"--results={results}", f"--out={tmp_path}"]) == 0
    assert dict(mpl.rcParams) == settings
    drawn = NAMES - {"depth_cifar10", "depth_imagenet"}  # nothing of them was run
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


def test_a_data_set_of_which_nothing_was_run_is_named_in_the_title(measured: tuple[Measured, ...]) -> None:
    severity = draw_severity(measured)
    assert severity.get_suptitle() == "Corrupted test sets, by severity (not run: CIFAR-10, ImageNet)"
    assert len(severity.axes) == len(paper.METRICS)


def test_the_same_numbers_give_the_same_bytes(measured: tuple[Measured, ...], tmp_path: Path) -> None:
    with figure_style():
        for name in ("one", "other"):
            save(draw_low_data(measured), tmp_path, name)
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"other.{kind}").read_bytes()


def test_bars_start_at_zero_and_have_the_measured_height(measured: tuple[Measured, ...]) -> None:
    with figure_style():
        _, nll, _, accuracy, *_ = draw_bars(measured).axes
    assert heights(nll)[0] == pytest.approx(mean_over_networks(measured, "cifar100", "temperature", "nll"))
    assert nll.get_ylim()[0] == 0
    assert accuracy.get_title(loc="left") == "1 − accuracy"
    short = 1 - mean_over_networks(measured, "cifar100", "temperature", "accuracy")
    assert heights(accuracy)[0] == pytest.approx(short)
    assert texts(nll).count("not run") == 4


def test_severity_curves_begin_at_the_clean_test_set(measured: tuple[Measured, ...]) -> None:
    axes = draw_severity(measured).axes[1]
    curves = {line.get_color(): np.asarray(line.get_ydata(), dtype=float) for line in axes.lines}
    for method in ("temperature", "lates_none_1"):
        values = curves[COLOURS[method]]
        assert len(values) == 6
        assert values[0] == pytest.approx(mean_over_networks(measured, "cifar100", method, "nll"))


def test_a_trend_with_less_data_is_of_one_seed_throughout(measured: tuple[Measured, ...]) -> None:
    """The plain split has two seeds here, the others one: the last point is of that one."""
    first = {each.cell.recipe: each for each in measured if each.cell.seed == 0}
    quarter, plain = first["low_data"], first["in_distribution"]
    curves = {
        line.get_color(): np.asarray(line.get_ydata(), dtype=float) for line in draw_low_data(measured).axes[1].lines
    }
    expected = [quarter.relative_gain("lates_none_1", "nll"), np.nan, plain.relative_gain("lates_none_1", "nll")]
    np.testing.assert_allclose(curves[COLOURS["lates_none_1"]], expected)


def test_only_where_gains_are_drawn_the_key_names_the_rival_that_the_title_does_not(
    measured: tuple[Measured, ...],
) -> None:
    figures = draw_figures(measured)
    keys = {
        name: [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        for name, figure in figures.items()
    }
    own = "LATES, paper mode (SGD)"
    named = {name for name, key in keys.items() if f"{own}; gain over temperature, SGD in beta" in key}
    assert named == {"low_data", "corruptions", "depth_cifar100"}
    assert {name for name, key in keys.items() if own in key} == {"in_distribution", "holdout_size", "severity"}


def test_scatter_holds_every_corrupted_set_once_in_its_winners_colour(measured: tuple[Measured, ...]) -> None:
    panels = draw_scatter(measured).axes
    for axes, sign in ((panels[1], -1), (panels[3], 1)):  # NLL, accuracy
        lost, tied, won = (np.asarray(collection.get_offsets(), dtype=float) for collection in axes.collections)
        assert len(lost) + len(tied) + len(won) == 2 * 95
        assert all(ours == theirs for theirs, ours in tied)
        assert all(sign * (ours - theirs) > 0 for theirs, ours in won)
        assert all(sign * (ours - theirs) < 0 for theirs, ours in lost)
        assert f"{100 * len(won) / 190:.0f} % of 190" in texts(axes)[0]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--results={tmp_path / 'nowhere'}", f"--out={tmp_path / 'figures'}"]) == 1
    assert "nowhere is no folder" in capsys.readouterr().out
    assert not (tmp_path / "figures").exists()
