"""Views for text and tables: test rows of `results/text_and_tables/`."""

from pathlib import Path

from experiments.data.files import parse_json
from experiments.reporting.names import in_words
from experiments.reporting.summaries import Spread
from experiments.reporting.tables.markdown import Table, with_deviation


def problem_table(folder: Path, name: str, title: str) -> Table:
    """A column for each candidate; all metrics clean and over held-back shifts, then the NLL of each set."""
    path = folder / f"{name}.json"
    if not path.exists():
        return Table(name, title, ("rows", "metric"), (), "Not run.", text_columns=2)
    file = parse_json(path.read_bytes())
    seeds, scores = file["seeds"], file["test"]
    whole = ("clean", "held back")
    columns = [(each, metric) for each in whole for metric in ("nll", "brier", "accuracy", "ece")]
    columns += [(each, "nll") for each in scores["network"] if each not in whole]
    rows = tuple(
        (test, in_words(metric), *(with_deviation(Spread(*of[test][metric], count=seeds), 3) for of in scores.values()))
        for test, metric in columns
    )
    note = f'Means ± standard deviations over {seeds} seeds. By the rule views="auto" is: {file["chosen"] or "no views"}.'
    return Table(name, title, ("rows", "metric", *scores), rows, note, text_columns=2)
