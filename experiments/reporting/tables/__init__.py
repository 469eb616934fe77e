"""Every table of the paper and of ours, from `results/` alone.

Each table is one function of what was measured. `document` writes all of them as CSV and the pages that show some.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.reporting.summaries import Measured, read_measured
from experiments.reporting.tables.comparisons import (
    gains,
    mc_dropout_gains,
    natural,
    paper_tests,
    paper_wins,
    primary,
    wins,
)
from experiments.reporting.tables.costs import cost, depth, runs, timing_table
from experiments.reporting.tables.markdown import Table
from experiments.reporting.tables.scores import by_network, imagenet, main_table, mc_dropout, methods_table, scores
from experiments.reporting.tables.variations import budget, holdout_size, low_data

TABLES: tuple[Callable[[Sequence[Measured]], Table], ...] = (
    main_table, primary, wins, paper_wins, methods_table, scores, gains, budget, low_data, holdout_size, mc_dropout,
    mc_dropout_gains, natural, paper_tests, imagenet, cost, depth, runs,
)  # fmt: skip


def make_tables(results: Path) -> tuple[tuple[Measured, ...], dict[str, Table]]:
    """What was measured, and name -> table of the results as they are now; without results, tables of what is missing."""
    measured = read_measured(results)
    tables = [make(measured) for make in TABLES]
    tables += [by_network(measured, metric, group) for group in ("clean", "corrupted") for metric in ("nll", "ece")]
    tables.append(timing_table(results / "timing"))
    return measured, {table.name: table for table in tables}
