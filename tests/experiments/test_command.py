"""The command `python -m experiments`: what it shows, what it refuses, and in what words."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from experiments.__main__ import app, parse_seeds, told_in_words
from experiments.archives import DataError
from experiments.display import Lines, in_words, show_grid
from experiments.provenance import recipe_of
from experiments.recipes import RECIPES, Experiment
from experiments.results import METRICS, Cell, CellResults, Row, write_results
from experiments.run import Moment, Standing
from experiments.schedules import Recipe


def call(*arguments: str | Path) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return outcome.exit_code, outcome.output


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def finish(results: Path, experiment: Experiment, cell: Cell) -> None:
    facts = {"methods": {}, "recipe": recipe_of(experiment, cell)}
    write_results(results, CellResults(cell, (Row("network", "clean", dict.fromkeys(METRICS, 0.5)),), facts))


def test_every_recipe_states_command_cost_and_expectation() -> None:
    code, text = call("recipes")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    for experiment in RECIPES.values():
        assert f"{experiment.command}\n" in text
        assert experiment.cost in in_one_line(text)
        assert experiment.expected in in_one_line(text)


def test_a_finished_grid_is_skipped(tmp_path: Path) -> None:
    for cell in RECIPES["smoke"].cells():
        finish(tmp_path / "results", RECIPES["smoke"], cell)
    code, text = call("run", "smoke", "--runs", tmp_path / "runs", "--results", tmp_path / "results")
    assert code == 0
    assert "0 done now, 4 before, 0 in the hands of other runners, 0 left of 4." in text
    assert not (tmp_path / "runs").exists()


def test_results_of_another_recipe_are_kept_and_said(tmp_path: Path) -> None:
    smoke = RECIPES["smoke"]
    for cell in smoke.cells([0]):
        finish(tmp_path, replace(smoke, severities=(2,)), cell)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, text = call("run", "smoke", "--seeds", "1", "--runs", tmp_path / "runs", "--results", tmp_path)
    assert code == 1
    assert "smoke-cifar10_600-tiny_vgg-s0-t0.7-h0.3.json, and 1 more, were made by another recipe: " in text
    assert "severities was 2, is now 1, 3, 5. Choose another --results, or remove" in text
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_no_time_at_all_leaves_everything_and_says_so(tmp_path: Path) -> None:
    folders = ("--runs", tmp_path / "runs", "--results", tmp_path / "results")
    code, text = call("run", "smoke", *folders, "--max-minutes", "0", "--seeds", "0", "--device", "cpu")
    assert code == 0
    assert "2 left of 2." in text
    assert "The same command goes on from here." in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "smok"), 2, r'Unknown recipe "smok"\. Recipes: in_distribution, out_of_distribution'),
        (("status", "smok"), 2, "Unknown recipe"),
        (("run", "smoke", "--seeds", "a"), 2, r'--seeds "a": expected distinct numbers and ranges'),
        (("run", "smoke", "--seeds", "3-1"), 2, "--seeds"),
        (("run", "smoke", "--seeds", "1-2-3"), 2, r'--seeds "1-2-3": expected distinct numbers and ranges'),
        (("run", "smoke", "--shard", "2"), 2, r'--shard "2": expected i/n'),
        (("run", "smoke", "--shard", "3/2"), 1, "--shard 3/2: expected i/n"),
        (("run", "smoke", "--device", "gpu"), 1, r'Unknown --device "gpu"\. Devices: cpu; cuda; cuda:1, the second'),
        (("run", "smoke", "--only", "vgg16/cifar10"), 1, r'Unknown --only "vgg16/cifar10"\. smoke has: tiny_vgg'),
        (
            ("look", "--dataset", "mnist"),
            1,
            r'Unknown data set "mnist"\. Data sets: cifar10_600, cifar10, cifar100, imag',
        ),
    ],
)
def test_a_wrong_call_is_refused_in_words(arguments: tuple[str, ...], code: int, message: str) -> None:
    found, text = call(*arguments)
    assert found == code
    assert re.search(message, text)


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    folders = ("--runs", tmp_path / "runs", "--results", tmp_path / "results", "--data", tmp_path / "nothing")
    code, text = call("run", "mc_dropout", *folders, "--device", "cpu")
    assert code == 1
    assert "0 done now, 0 before, 0 in the hands of other runners, 0 left of 20." in text
    assert max(map(len, text.splitlines())) <= max(80, 2 + len(f"{tmp_path / 'nothing'}."))
    text = in_one_line(text)
    first = "cifar10-wide_resnet_28_10-s0-d0.2, cifar10-wide_resnet_28_10-s0-d0.1, cifar10-wide_resnet_28_10-s1-d0.2"
    assert f"Error: 10 cells failed ({first} and 7 more): No cifar-10-batches-py in {tmp_path / 'nothing'}." in text
    assert "leave --data out: then it is downloaded" in text
    assert text.count("No cifar-10-batches-py") == 2  # when it happens and in the end
    assert text.count("loading") == 2
    (tmp_path / "file").write_text("")
    code, text = call("run", "smoke", "--runs", tmp_path / "file", "--results", tmp_path / "results")
    assert code == 1
    assert str(tmp_path / "file") in text


@pytest.mark.parametrize("command", ["tables", "figures"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    code, text = call(command, "--results", tmp_path, "--out", tmp_path / "file" / "below")
    assert code == 1
    assert text == f"Error: {tmp_path / 'file' / 'below'}: Not a directory.\n"


def test_a_network_that_diverges_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = replace(RECIPES["smoke"], networks=("tiny_vgg",), training=Recipe(1, batch=40, rate=1e20, weight_decay=0))
    monkeypatch.setitem(RECIPES, "smoke", wild)
    folders = ("--runs", tmp_path / "runs", "--results", tmp_path / "results", "--device", "cpu")
    code, text = call("run", "smoke", *folders)
    assert code == 1
    names = "cifar10_600-tiny_vgg-s0-t0.7-h0.3, cifar10_600-tiny_vgg-s1-t0.7-h0.3"
    assert f"Error: 2 cells failed ({names}): Training diverged: the mean loss" in in_one_line(text)
    monkeypatch.setenv("LATES_DEBUG", "1")
    with pytest.raises(FloatingPointError, match="Training diverged"):
        call("run", "smoke", *folders)


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.00 GiB of which 1 GiB is free. "
    "Process 7 has 138 GiB memory in use. See documentation for Memory Management"
)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            torch.OutOfMemoryError(OUT_OF_MEMORY),
            "The GPU's memory is full: CUDA out of memory. Tried to allocate 2.00 GiB. End what else runs there, or take "
            "--device cpu.",
        ),
        (MemoryError(), "The memory is full. End what else runs here."),
        (FloatingPointError("Training diverged."), "Training diverged."),
        (PermissionError(13, "Permission denied", "/proc/x"), "/proc/x: Permission denied."),
        (DataError("No images."), "No images."),
    ],
)
def test_what_a_user_can_mend_is_told_in_a_sentence(
    fault: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as end, told_in_words():
        raise fault
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == f"Error: {words}\n"


def test_a_mistake_in_the_code_keeps_its_traceback() -> None:
    with pytest.raises(KeyError), told_in_words():
        raise KeyError("name")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said() -> None:
    code, text = call("run", "smoke", "--device", "cuda")
    assert code == 1
    assert "sees no GPU here. Use --device cpu" in text


def test_status_shows_the_grid_within_eighty_columns(tmp_path: Path) -> None:
    cells = RECIPES["low_data"].cells()
    for cell in cells[:7]:
        finish(tmp_path, RECIPES["low_data"], cell)
    code, text = call("status", "low_data", "--runs", tmp_path / "runs", "--results", tmp_path)
    assert code == 0
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 1 + 30 + 1
    assert lines[0].split()[-5:] == ["s0", "s1", "s2", "s3", "s4"]
    assert re.fullmatch(r"vgg16/cifar10 +t0\.25 +done +- +- +- +- *", lines[1])
    assert lines[-1].startswith("7 of 150 cells done, 0 being worked on.")


def test_each_standing_has_its_word(capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell("smoke", "cifar10_600", "tiny_vgg", 0)
    standings = [
        Standing(Cell("smoke", "cifar10_600", "tiny_vgg", seed), *facts)
        for seed, facts in enumerate(
            [
                (True, False, 1.0, False),
                (False, True, 0.25, False),
                (False, False, 0.5, False),
                (False, True, 0.0, False),
                (False, False, 0.0, False),
                (False, False, 1.0, True),
            ]
        )
    ]
    show_grid(standings, Console(width=80))
    _, row, _, remark = capsys.readouterr().out.splitlines()
    assert row.split() == [f"{cell.network}/{cell.dataset}", "done", "25%…", "50%", "…", "-", "other"]
    assert remark == "1 measured by another recipe, shown as other: `run` says what differs."


def test_lines_say_how_long_it_will_take() -> None:
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


def test_lines_fit_the_longest_cell_into_eighty_columns() -> None:
    lines: list[str] = []
    seconds = itertools.count(0, 700)
    show = Lines(lines.append, lambda: next(seconds))
    cell = max(RECIPES["holdout_size"].cells(), key=lambda cell: len(cell.name))
    for done in (0, 1, 2, 96):
        show(Moment(cell, 249, 250, "evaluating", done, 96))
    show(Moment(cell, 250, 250, "failed", 0, 1, "The reason has quite a few words, which are " * 5))
    assert max(len(line) for text in lines for line in text.splitlines()) <= 80
    assert in_one_line(lines[1]).endswith(f"{cell.training} evaluating 1%, 18 h 28 min left")


def test_a_failure_is_said_when_it_happens_but_its_reason_once() -> None:
    lines: list[str] = []
    show = Lines(lines.append)
    for place in (1, 2):
        show(Moment(Cell("smoke", "cifar10", "resnet18", place), place, 2, "failed", 0, 1, "No images."))
    assert lines == ["[1/2] cifar10-resnet18-s1  failed: No images."]


def test_lines_are_few() -> None:
    seconds = itertools.count()
    lines: list[str] = []
    show = Lines(lines.append, lambda: next(seconds))
    for done in range(100):
        show(Moment(Cell("smoke", "cifar10", "resnet18", 0), 1, 1, "training", done, 1000))
    assert len(lines) == 10


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_seeds_are_numbers_and_ranges() -> None:
    assert parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert parse_seeds("7,0-1") == [7, 0, 1]
    assert parse_seeds(None) is None


def test_look_writes_the_contact_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 6):
        Image.new("RGB", (400, 400), (40 * number,) * 3).save(tmp_path / f"frost{number}.png")
    monkeypatch.setenv("LATES_FROST", str(tmp_path))
    code, _ = call("look", "--out", tmp_path / "sheet.png", "--images", "1")
    assert code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 19 * 64


def test_tables_and_figures_have_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tables", "figures"):
        outcome = CliRunner().invoke(app, [name, "--help"])
        assert outcome.exit_code == 0
        assert "--results" in outcome.output
