"""Every table of the paper and of ours, from `results/` alone.

Each table is one function of what was measured. `document` writes all of them as CSV and the pages that show some.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from experiments.reporting.names import CIFAR
from experiments.reporting.summaries import Measured, read_measured
from experiments.reporting.tables.comparisons import gains, mc_dropout_gains, paper_tests, primary
from experiments.reporting.tables.costs import cost, depth, runs, timing_table, views_timing_table
from experiments.reporting.tables.factorial import factorial_tables
from experiments.reporting.tables.markdown import Table
from experiments.reporting.tables.scores import baselines, imagenet, mc_dropout, methods_table, scores
from experiments.reporting.tables.searches import candidates_table, round_tables
from experiments.reporting.tables.text_and_tables import problem_table

TABLES: tuple[Callable[[Sequence[Measured]], Table], ...] = (
    partial(primary, name="primary", metric="nll"), partial(primary, name="second", metric="ece_smooth"),
    *(partial(baselines, dataset=dataset) for dataset in CIFAR),
    methods_table, scores, gains,
    mc_dropout, mc_dropout_gains, paper_tests, imagenet, cost, depth, runs,
)  # fmt: skip
PROBLEMS = (("trec", "Questions of six kinds"), ("magic", "Particles that a telescope saw"))


def make_tables(results: Path) -> tuple[tuple[Measured, ...], dict[str, Table]]:
    """What was measured, and name -> table of the results as they are now; without results, tables of what is missing."""
    measured = read_measured(results)
    tables = [*(make(measured) for make in TABLES), timing_table(results / "timing")]
    tables.append(views_timing_table(results / "timing"))
    tables += factorial_tables(results / "paper_recipe")
    tables += [problem_table(results / "text_and_tables", *problem) for problem in PROBLEMS]
    for name in ("search_shift", "search_shift_public", "search_third"):
        tables += round_tables(results / name)
    for folder, (network, title) in product(("search", "search_holdouts"), (("resnet18", "ResNet18"), ("vgg16", "VGG16"))):
        file = results / folder / f"cifar100-{network}-s0" / "candidates.csv"
        tables.append(candidates_table(file, f"{folder}_{network}", title))
    return measured, {table.name: table for table in tables}
