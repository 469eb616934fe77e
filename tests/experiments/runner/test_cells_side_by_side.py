"""Runners side by side end with the results of one alone."""

import itertools
import json
import os
from pathlib import Path

import pytest
import torch

from tests.experiments.children import start, survived
from tests.experiments.runner.tiny_grid import numbers, run_tiny
from tests.experiments.sample import tiny_recipe


def run_tiny_alone(root: Path, seeds: tuple[int, ...]) -> None:
    torch.set_num_threads(1)
    outcome = run_tiny(root, seeds)
    root.mkdir(exist_ok=True)
    (root / f"done-{os.getpid()}.json").write_text(json.dumps([cell.name for cell in outcome.done]))


@pytest.mark.slow
def test_two_runners_finish_a_grid_with_each_cell_done_once(tmp_path: Path) -> None:
    seeds = (0, 1, 2, 3)
    runners = [start(run_tiny_alone, tmp_path / "two", seeds) for _ in range(2)]
    assert all(survived(runner) for runner in runners)
    shares = [json.loads(path.read_text()) for path in (tmp_path / "two").glob("done-*.json")]
    names = [cell.name for cell in tiny_recipe(seeds).cells()]
    assert sorted(itertools.chain(*shares)) == sorted(names)
    assert len(shares) == 2
    assert survived(start(run_tiny_alone, tmp_path / "one", seeds))
    assert numbers(tmp_path / "two") == numbers(tmp_path / "one")
