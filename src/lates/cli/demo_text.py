"""The results of `lates demo` as text of 80 columns: the comparison, contributions and costs, and what to do next."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lates.cli.table import comparison_lines, count_verdicts, explain
from lates.demo import LATES, NO_VIEWS, TEMPERATURE, Results

BAR = 18
NEXT = """\
import lates
calibrated = lates.calibrate(model, train=train_loader, holdout=holdout_loader)
probabilities = calibrated.predict_proba(images)"""


def show(results: Results, console: Console) -> None:
    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False)

    images, sets = results.images, results.comparisons
    say(
        f"A residual network of {results.parameters:,} parameters, trained on Fashion-MNIST. Probes are trained on its "
        f"{images['train']:,} training images, weights fitted on {images['holdout']:,} held-out ones; the table is measured "
        f"on {images['test']:,} more, as they are and under three shifts.\n"
    )
    console.print(comparison_lines(sets, results.auc, TEMPERATURE, intervals=False), soft_wrap=True)
    say(f"\n{explain(sets, TEMPERATURE, intervals=False)}\n")
    for method in (NO_VIEWS, LATES):
        counts = count_verdicts(sets, method, TEMPERATURE)
        say(f"{method}: {counts['better']} better, {counts['worse']} worse.")
    say(
        "\nLATES trains its probes on views: four randomly changed copies of each image. Noise and contrast resemble them, "
        "blur does not. Other networks give other results: try `lates demo --train --seed 1`.\n"
    )
    console.print(cost_table(results, "#" if console.options.ascii_only else "█"))
    say("\nFor your own model:\n")
    say(NEXT, style="cyan")


def cost_table(results: Results, brick: str) -> Table:
    """The contribution of every member, and below it what the calibration costs."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("contribution of", no_wrap=True, min_width=21)
    for method in (NO_VIEWS, LATES):
        table.add_column(method, no_wrap=True, min_width=BAR + 6)
    costs = [results.costs[method] for method in (NO_VIEWS, LATES)]
    for member in costs[0].contributions:
        parts = [cost.contributions[member] for cost in costs]
        table.add_row(member, *(f"{part:.2f} {brick * round(BAR * part)}" for part in parts))
    table.add_section()
    table.add_row("parameters added", *(f"{cost.added_parameters:.1%}" for cost in costs))
    table.add_row("time to predict", *(f"{cost.prediction_time:.2f} x the network's" for cost in costs))
    table.add_row("time to calibrate", *(f"{cost.calibration_seconds:.1f} s" for cost in costs))
    return table
