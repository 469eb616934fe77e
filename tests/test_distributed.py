"""Several processes, each with its shard of the rows, end with the calibration of one."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, SubsetRandomSampler, TensorDataset

import lates
from lates.network import shard_loaders
from tests import processes
from tests.processes import Outcome, Rank

ROOT = Path(__file__).parents[1]
DEADLINE = 120.0
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",  # there may be fewer GPUs than processes
}
WORLD_SIZE = 3


def start(*arguments: object) -> "subprocess.Popen[str]":
    """`tests.processes` in a process of its own."""
    command = [sys.executable, "-m", "tests.processes", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """For each rank the result of each task: an outcome, or (type of the error, message)."""
    folder = tmp_path_factory.mktemp("processes")
    started = [start("work", rank, WORLD_SIZE, folder) for rank in range(WORLD_SIZE)]
    try:
        for process in started:
            output, _ = process.communicate(timeout=DEADLINE)
            assert process.returncode == 0, output
    finally:
        for process in started:
            process.kill()
    return [torch.load(folder / f"rank-{rank}", weights_only=False) for rank in range(WORLD_SIZE)]


@pytest.mark.parametrize("task", processes.ALIKE, ids=lambda task: task.__name__)
def test_processes_with_shards_end_with_the_calibration_of_one(
    task: Callable[[Rank], Outcome], results: list[dict[str, Any]]
) -> None:
    alone = task(Rank())
    assert sum(weight > 0 for weight in alone.weights.values()) > (len(alone.weights) > 1)
    for of_rank in results:
        outcome = of_rank[task.__name__]
        assert isinstance(outcome, Outcome), outcome
        assert outcome.weights == pytest.approx(alone.weights, rel=1e-5, abs=1e-5)
        assert torch.allclose(outcome.probabilities, alone.probabilities, atol=1e-5)
        assert outcome.fit.nll == pytest.approx(alone.fit.nll, rel=1e-6)
        assert (outcome.fit.rows, outcome.fit.certified) == (alone.fit.rows, alone.fit.certified)
        assert outcome.weights == results[0][task.__name__].weights


def test_processes_that_draw_views_agree_with_one_another(results: list[dict[str, Any]]) -> None:
    first, *others = (of_rank["mc_dropout_with_views"] for of_rank in results)
    assert isinstance(first, Outcome), first
    assert first.fit.nll < first.fit.nll_temperature
    for other in others:
        assert other.weights == first.weights
        assert torch.equal(other.probabilities, first.probabilities)


def test_one_process_of_a_group_may_calibrate_alone(results: list[dict[str, Any]]) -> None:
    first, *others = (of_rank["one_process_alone"] for of_rank in results)
    assert first.weights == processes.by_default(Rank()).weights
    assert others == [None, None]


def test_collectives_sum_gather_and_leave_their_input(results: list[dict[str, Any]]) -> None:
    values = torch.arange(6).view(2, 3).T
    for rank, of_rank in enumerate(results):
        found = of_rank["collectives"]
        for name, expected in {"sum": 6 * values, "first": values, "values": (rank + 1) * values}.items():
            assert torch.equal(found[name], expected)
        assert (found["gathered"], found["on_this_host"]) == ([0, 1, 2], 3)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("unsharded_loaders", "holdout loaders of processes 0, 1, 2 read the same rows"),
        ("padding_sampler", "holdout loader's DistributedSampler repeats 2 of 307 rows"),
        ("other_parameters", "The processes calibrate different networks"),
        ("settings_of_the_paper", "The paper's SGD is for one process, and here are 3"),
    ],
)
def test_all_processes_refuse_what_would_count_rows_twice(task: str, text: str, results: list[dict[str, Any]]) -> None:
    for of_rank in results:
        kind, message = of_rank[task]
        assert kind == "ValueError", message
        assert text in message


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(11))


ROWS = TensorDataset(torch.arange(11))
LOADERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: DataLoader(ROWS, 2),
    "shuffled": lambda: DataLoader(ROWS, 2, shuffle=True, drop_last=True),
    "of some rows": lambda: DataLoader(ROWS, 2, sampler=SubsetRandomSampler(range(7))),
    "with padding": lambda: DataLoader(ROWS, 2, sampler=DistributedSampler(ROWS, 3, 1)),
    "by batches": lambda: DataLoader(ROWS, batch_sampler=[[0, 1, 2], [3, 4], [5], [6, 7, 8, 9, 10]]),
    "a stream": lambda: DataLoader(Stream(), 2),
    "a list": lambda: [torch.arange(11)[i : i + 2] for i in range(0, 11, 2)],
}


@pytest.mark.parametrize("world_size", [2, 3, 12])
@pytest.mark.parametrize("form", LOADERS)
def test_shards_hold_every_row_once(form: str, world_size: int) -> None:
    rows: list[int] = []
    for rank in range(world_size):
        torch.manual_seed(rank)  # shuffled in another order in every process
        part = shard_loaders({"train": LOADERS[form]()}, rank, world_size)["train"]
        first, again = ([row for batch in part for row in _rows_of(batch)] for _ in range(2))
        assert first == again
        rows += first
    assert sorted(rows) == list(range(7 if form == "of some rows" else 11))


def _rows_of(batch: Any) -> list[int]:
    return (batch[0] if isinstance(batch, list) else batch).tolist()


def test_the_script_in_the_documentation_calibrates_together(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    (script,) = re.findall(r'^```python title="calibrate_together.py"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    (tmp_path / "calibrate_together.py").write_text(script, "utf-8")
    (tmp_path / "my_project.py").write_text(
        "from tests.processes import HELD, TRAIN, network as make_model, rows\n"
        "make_datasets = lambda: (rows(TRAIN, 1), rows(HELD, 2))\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "calibrate_together.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    loaded = lates.load(tmp_path / "model.lates.safetensors", processes.network())
    with pytest.warns(UserWarning, match="budget"):  # so small a network can afford no probe
        alone = processes.calibrate(Rank(), budget=0.01)
    assert loaded.weights == pytest.approx(alone.weights, abs=1e-5)
    assert loaded.fit.rows == processes.HELD
