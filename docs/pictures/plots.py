"""Draw the pictures of the documentation and of the README from the demo's network: python docs/pictures/plots.py"""

from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor

import lates
from lates.demo import load_network, load_splits

FOLDER = Path(__file__).parents[1] / "plots"


def main() -> None:
    model, splits = load_network(), load_splits()
    calibrated = lates.calibrate(model, train=splits.train.batches, holdout=splits.holdout.batches)
    scaled = lates.calibrate(model, holdout=splits.holdout.batches, blocks=[])
    images, labels = splits.test.images, splits.test.labels
    with torch.no_grad():
        network, temperature, stacked = (one(images) for one in (model, scaled, calibrated))
    methods = {"network": network, "temperature scaling": temperature, "LATES": stacked}
    figures = {
        "reliability": before_and_after(network, stacked, labels),
        "risk-coverage": lates.plot.risk_coverage(methods, labels),
        "contributions": lates.plot.contributions(calibrated),
        "budget": lates.plot.budget(calibrated),
    }
    FOLDER.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "lates"}):  # the same names of clips in every run
        for name, figure in figures.items():
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Description": said_in(figure)})


def before_and_after(before: Tensor, after: Tensor, labels: Tensor) -> Figure:
    return lates.plot.reliability({"Before: the network alone": before, "After: calibrated by lates": after}, labels)


def said_in(figure: Figure) -> str:
    """The words and numbers in the axes, which an SVG file holds as outlines."""
    return "; ".join(text.get_text().replace("\n", ", ") for axes in figure.axes for text in axes.texts)


if __name__ == "__main__":
    main()
