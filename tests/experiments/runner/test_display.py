"""What the command shows: progress and durations."""

import itertools
from dataclasses import replace

import pytest

from experiments.recipes import RECIPES, Cell
from experiments.runner.cells import Moment
from experiments.runner.display import Lines, in_words


def test_progress_lines_estimate_the_time_left() -> None:
    seconds = itertools.count(0, 30)
    lines: list[str] = []
    show = Lines(lines.append, lambda: next(seconds))
    cell = Cell("smoke", "cifar10", "resnet18", 0)
    for done in (10, 20, 100):
        show(Moment(cell, 1, 3, "training", done, 100))
    for done in (1, 2):
        show(Moment(cell, 1, 3, "evaluating", done, 2))
    assert lines == [
        "[1/3] cifar10-resnet18-s0  training",
        "[1/3] cifar10-resnet18-s0  training 20%, 4 min 0 s left",
        "[1/3] cifar10-resnet18-s0  training, took 1 min 0 s",
        "[1/3] cifar10-resnet18-s0  evaluating",
        "[1/3] cifar10-resnet18-s0  evaluating, took 30 s",
        "2 cells to go, about 5 min 0 s",
    ]
    lines.clear()
    for place in (2, 3):
        for done in (1, 2):
            show(Moment(replace(cell, seed=place), place, 3, "evaluating", done, 2))
    assert [line for line in lines if "to go" in line] == ["1 cell to go, about 1 min 45 s"]


def test_progress_lines_fit_the_longest_cell_into_eighty_columns() -> None:
    lines: list[str] = []
    seconds = itertools.count(0, 700)
    show = Lines(lines.append, lambda: next(seconds))
    cell = max(RECIPES["holdout_size"].cells(), key=lambda cell: len(cell.name))
    for done in (0, 1, 2, 96):
        show(Moment(cell, 249, 250, "evaluating", done, 96))
    show(Moment(cell, 250, 250, "failed", 0, 1, "The reason has quite a few words, which are " * 5))
    assert max(len(line) for text in lines for line in text.splitlines()) <= 80
    assert " ".join(lines[1].split()).endswith(f"{cell.training} evaluating 1%, 18 h 28 min left")


def test_a_reason_for_failing_is_printed_once() -> None:
    lines: list[str] = []
    show = Lines(lines.append)
    for place in (1, 2):
        show(Moment(Cell("smoke", "cifar10", "resnet18", place), place, 2, "failed", 0, 1, "No images."))
    assert lines == ["[1/2] cifar10-resnet18-s1  failed: No images."]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
