"""The pictures show the numbers of the metrics and of the fit, on the axes they are given, apart from pyplot."""

import builtins
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Rectangle
from torch import Tensor

import lates
from tests.problems import sharpened

LOGITS, LABELS = sharpened(3.0, 500, 4, 0)
METHODS = {"before": LOGITS, "middle": LOGITS / 2, "after": LOGITS / 3}
STACK = replace(
    lates.fit_stack({"head": LOGITS}, LABELS).over(["early", "late", "head"]),
    weights=torch.tensor([0.0, 0.25, 0.75], dtype=torch.float64),
)
BUDGETED = replace(STACK, budgets=(0.0, 0.01, 0.025), budget_nll=(0.5, 0.4, 0.38))


def dots(axes: Axes) -> np.ndarray:
    (found,) = [part for part in axes.collections if isinstance(part, PathCollection)]
    return np.asarray(found.get_offsets())


def bars(axes: Axes) -> list[Rectangle]:
    return [part for part in axes.patches if isinstance(part, Rectangle)]


def test_reliability_draws_a_dot_and_a_band_for_each_bin_with_inputs() -> None:
    figure = lates.plot.reliability(METHODS, LABELS, bins=10)
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(METHODS)
    for axes, logits in zip(figure.axes, METHODS.values(), strict=True):
        diagram = lates.metrics.reliability(logits, LABELS, bins=10)
        filled = diagram.counts > 0
        means = torch.stack([diagram.confidence, diagram.accuracy], 1)[filled]
        np.testing.assert_allclose(dots(axes), means)
        bands = [(bar.get_x(), bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars(axes)]
        np.testing.assert_allclose(bands, torch.stack([diagram.edges[:-1], *diagram.bands], 1)[filled])
        texts = " ".join(text.get_text() for text in axes.texts)
        assert f"calibration error {100 * lates.metrics.ece(logits, LABELS, bins=10):.1f} %" in texts


def test_risk_coverage_draws_a_curve_for_each_method() -> None:
    (axes,) = lates.plot.risk_coverage(METHODS, LABELS).axes
    assert len(axes.lines) == len(METHODS)
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}) == len(METHODS)
    for line, (name, logits) in zip(axes.lines, METHODS.items(), strict=True):
        coverages, risks = (np.asarray(values) for values in line.get_data())
        assert coverages[-1] == 1
        assert risks[-1] == pytest.approx(1 - lates.metrics.accuracy(logits, LABELS))
        assert line.get_label() == f"{name}, AURC {100 * lates.metrics.aurc(logits, LABELS):.2f} %"


def test_contributions_are_bars_from_the_first_block_to_the_head(calibrated: lates.CalibratedModel) -> None:
    for one in (STACK, calibrated):
        (axes,) = lates.plot.contributions(one).axes
        shares = [bar.get_width() for bar in bars(axes)]
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert dict(zip(names, shares, strict=True)) == pytest.approx(one.contributions)
        assert axes.yaxis_inverted(), "the first block is at the top"
        *probes, head = [bar.get_facecolor() for bar in bars(axes)]
        assert head not in probes


def test_budget_draws_every_budget_and_marks_the_fit() -> None:
    (axes,) = lates.plot.budget(BUDGETED).axes
    curve, chosen, _ = axes.lines
    np.testing.assert_allclose(np.asarray(curve.get_xydata()), [(0, 0.5), (0.01, 0.4), (0.025, 0.38)])
    np.testing.assert_allclose(np.asarray(chosen.get_xydata()), [(0.01, 0.4)])
    with pytest.raises(ValueError, match="its budget was not binding"):
        lates.plot.budget(STACK)


def test_each_function_returns_the_figure_of_the_axes_it_was_given() -> None:
    figure = Figure()
    panels = figure.subplots(2, 3)[0]
    upper, middle, lower = figure.add_subfigure(GridSpec(2, 1, figure)[1]).subplots(3)
    assert lates.plot.reliability(METHODS, LABELS, axes=panels) is figure
    assert lates.plot.risk_coverage(LOGITS, LABELS, axes=upper) is figure
    assert lates.plot.contributions(STACK, axes=middle) is figure
    assert lates.plot.budget(BUDGETED, axes=lower) is figure
    assert all(axes.has_data() for axes in (*panels, upper, middle, lower))
    with pytest.raises(ValueError, match="2 axes came for 3 panels"):
        lates.plot.reliability(METHODS, LABELS, axes=panels[:2])
    with pytest.raises(ValueError, match="No method came"):
        lates.plot.risk_coverage(dict[str, Tensor](), LABELS)


def test_figures_are_saved_and_shown_in_notebooks_without_pyplot(tmp_path: Path) -> None:
    program = f"""
import sys, torch, lates
figure = lates.plot.reliability(2 * torch.eye(3), torch.arange(3))
figure.savefig({str(tmp_path / "figure.svg")!r})
assert figure._repr_png_().startswith(b"\\x89PNG")
assert "matplotlib.pyplot" not in sys.modules
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(lates.__file__).parents[1])}
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=environment)
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_it(name: str, *rest: Any) -> Any:
        if name == "lates.plot.notebook":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_it)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .lates\[plot\]"):
        lates.plot.contributions(STACK)
