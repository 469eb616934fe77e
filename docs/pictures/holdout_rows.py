"""Measure and draw how many hold-out rows the demo's network needs: python docs/pictures/holdout_rows.py (ten minutes)"""

import csv
import warnings
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn.functional import cross_entropy

import lates
from lates.demo import load_network, load_splits

FOLDER = Path(__file__).parents[1] / "plots"
PICTURE, TABLE = FOLDER / "holdout-rows.svg", FOLDER / "holdout-rows.csv"
SIZES, DRAWS = (20, 50, 100, 200, 500, 1000, 2000), 4
METHODS = {"network": "#777777", "temperature scaling": "#0072b2", "LATES": "#d55e00"}


def main() -> None:
    rows = measured() if not TABLE.exists() else read()
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for method, colour in METHODS.items():
        losses = [[loss for size, name, loss in rows if (size, name) == (n, method)] for n in SIZES]
        means = [sum(own) / len(own) for own in losses]
        axes.plot(SIZES, means, color=colour, label=method, marker="o", markersize=4)
        axes.fill_between(SIZES, [min(own) for own in losses], [max(own) for own in losses], color=colour, alpha=0.2, lw=0)
    axes.set(xscale="log", xlabel="hold-out rows", ylabel="test NLL (lower is better)")
    axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    axes.minorticks_off()
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, metadata={"Date": None})


def measured() -> list[tuple[int, str, float]]:
    model, splits = load_network(), load_splits()
    images, labels = splits.holdout.images, splits.holdout.labels
    rows: list[tuple[int, str, float]] = []

    def add(size: int, method: str, tested: nn.Module) -> None:
        with torch.no_grad():
            rows.append((size, method, float(cross_entropy(tested(splits.test.images).double(), splits.test.labels))))

    for size in SIZES:
        for draw in range(DRAWS):
            chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw))[:size]
            holdout = list(zip(images[chosen].split(250), labels[chosen].split(250), strict=True))
            add(size, "network", model)
            add(size, "temperature scaling", lates.calibrate(model, holdout=holdout, blocks=[], progress=False))
            stack = lates.calibrate(model, train=splits.train.batches, holdout=holdout, seed=draw, progress=False)
            add(size, "LATES", stack)
            print(rows[-3:], flush=True)
    with TABLE.open("w", newline="") as file:
        csv.writer(file).writerows([("rows", "method", "nll"), *((n, name, f"{loss:.5f}") for n, name, loss in rows)])
    return rows


def read() -> list[tuple[int, str, float]]:
    with TABLE.open() as file:
        return [(int(row["rows"]), row["method"], float(row["nll"])) for row in csv.DictReader(file)]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
