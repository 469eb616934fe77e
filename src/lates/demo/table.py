"""The demonstration in 80 columns: one table, who votes, what it costs, what to do next."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lates.demo.comparison import JITTERED, LATES, Comparison, Measured

TITLES = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier", "auc": "AUC"}
MARKS = {"better": ("*", "green"), "worse": ("!", "red"), "equal": (" ", "")}
BAR = 18
NEXT = """\
import lates
calibrated = lates.calibrate(model, train=train_loader, holdout=holdout_loader)
probabilities = calibrated.predict_proba(images)"""


def show(comparison: Comparison, console: Console) -> None:
    """Print all of it; in 80 columns no line of the tables or the code wraps."""

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False)

    images = comparison.images
    say(
        f"A residual network of {comparison.parameters:,} parameters, trained on Fashion-MNIST. Probes learn from "
        f"{images['train']:,} images that it was trained on, weights from {images['holdout']:,} held-out ones; the table "
        f"tests on {images['test']:,} more, as they are and under three shifts.\n"
    )
    console.print(metrics_table(comparison))
    say("\n" + explanation(comparison) + "\n")
    console.print(votes_table(comparison, "#" if console.options.ascii_only else "█"))
    say("\nOn your own model:\n")
    say(NEXT, style="cyan")


def explanation(comparison: Comparison) -> str:
    """What the marks say, and how far to trust them."""
    counts = [
        f"{method}: {comparison.count(method, 'better')} better, {comparison.count(method, 'worse')} worse."
        for method in (LATES, JITTERED)
    ]
    return (
        "* better, ! worse than temperature scaling by more than chance, judged by the\n"
        "95 % interval of the paired bootstrap over these images. "
        f"Of {comparison.tests} comparisons\nchance alone would mark about {0.05 * comparison.tests:.0f}.\n"
        f"{' '.join(counts)}\n"
        "Another network may fare otherwise: see `lates demo --train --seed 1`.\n"
        "Floor: the ECE that perfect calibration would measure on so many images.\n"
        "Noise and contrast resemble the jitter of the views; blur does not."
    )


def metrics_table(comparison: Comparison) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("test images", no_wrap=True)
    for metric, title in TITLES.items():
        table.add_column(title, justify="right", no_wrap=True)
        if metric == "ece":
            table.add_column("floor", justify="right", no_wrap=True, style="dim")
    for test_set, methods in comparison.measured.items():
        table.add_row(Text(test_set, style="bold"))
        for method, measured in methods.items():
            table.add_row(f"  {method}", *cells(measured))
    return table


def cells(measured: Measured) -> list[Text]:
    """One method's metrics, each with its mark, the floor after the ECE."""
    row: list[Text] = []
    for metric in TITLES:
        mark, style = MARKS[measured.verdict(metric)]
        row.append(Text(f"{measured.values[metric]:.4f}{mark}", style=style))
        if metric == "ece":
            row.append(Text(f"{measured.ece_floor:.4f}"))
    return row


def votes_table(comparison: Comparison, brick: str) -> Table:
    """The contribution of every member, and below it what the calibration costs."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("contribution of", no_wrap=True, min_width=21)
    calibrations = [comparison.calibrations[method] for method in (LATES, JITTERED)]
    for method in (LATES, JITTERED):
        table.add_column(method, no_wrap=True, min_width=BAR + 6)
    for member in calibrations[0].contributions:
        shares = [calibration.contributions[member] for calibration in calibrations]
        table.add_row(member, *(f"{share:.2f} {brick * round(BAR * share)}" for share in shares))
    table.add_section()
    table.add_row("parameters added", *(f"{one.added_parameters:.1%}" for one in calibrations))
    table.add_row("time to predict", *(f"{one.prediction_time:.2f} x the network's" for one in calibrations))
    table.add_row("time to calibrate", *(f"{one.calibration_seconds:.1f} s" for one in calibrations))
    return table
