"""The command `python -m experiments`: what it shows, what it refuses, and in what words."""

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.__main__ import main, parse_seeds
from experiments.data.archives import DataError
from experiments.evaluation.measuring import METRICS
from experiments.recipes import RECIPES, Cell, Recipe
from experiments.runner.faults import faults_in_words
from experiments.runner.results import CellResults, conditions_of, write_results
from experiments.training.hyperparameters import Hyperparameters


def call(*arguments: str | Path) -> tuple[int, str]:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(str(end.code))
    return code, said.getvalue()


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def finish(results: Path, recipe: Recipe, cell: Cell) -> None:
    facts = {"methods": {}, "recipe": conditions_of(recipe, cell)}
    write_results(results, CellResults(cell, {("network", "clean"): dict.fromkeys(METRICS, 0.5)}, facts))


def test_every_recipe_states_command_cost_and_expectation() -> None:
    code, text = call("recipes")
    assert code == 0
    assert max(map(len, text.splitlines())) <= 80
    for recipe in RECIPES.values():
        assert f"{recipe.command}\n" in text
        assert recipe.cost in in_one_line(text)
        assert recipe.expected in in_one_line(text)


def test_a_finished_grid_is_skipped_and_what_is_left_is_said(tmp_path: Path) -> None:
    for cell in RECIPES["smoke"].cells():
        finish(tmp_path / "results", RECIPES["smoke"], cell)
    folders = ("--runs", tmp_path / "runs", "--results", tmp_path / "results", "--device", "cpu")
    code, text = call("run", "smoke", *folders)
    assert code == 0
    assert "0 done now, 4 before, 0 claimed by other runners, 0 left of 4." in text
    assert not (tmp_path / "runs").exists()
    code, text = call("run", "smoke", *folders, "--seeds", "0,7", "--max-minutes", "0")
    assert code == 0
    assert "2 left of 4. The same command goes on from here." in in_one_line(text)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "smok"), 2, r'Unknown recipe "smok"\. Recipes: in_distribution, out_of_distribution'),
        (("status", "smok"), 2, "Unknown recipe"),
        (("run", "smoke", "--seeds", "a"), 2, r'--seeds: "a": expected distinct numbers and ranges'),
        (("run", "smoke", "--seeds", "3-1"), 2, "--seeds"),
        (("run", "smoke", "--seeds", "1-2-3"), 2, r'--seeds: "1-2-3": expected distinct numbers and ranges'),
        (("run", "smoke", "--workers", "0"), 2, "--workers: 0: expected a whole number, at least 1"),
        (("run", "smoke", "--max-minutes", "-1"), 2, "--max-minutes: -1: expected a number that is not negative"),
        (("run", "smoke", "--device", "gpu"), 1, r'Unknown --device "gpu"\. Devices: cpu; cuda; cuda:1, the second'),
        (("run", "smoke", "--only", "vgg16/cifar10"), 1, r'Unknown --only "vgg16/cifar10"\. smoke has: tiny_vgg'),
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
    assert "0 done now, 0 before, 0 claimed by other runners, 0 left of 20." in text
    assert max(map(len, text.splitlines())) <= max(80, 2 + len(f"{tmp_path / 'nothing'}."))
    text = in_one_line(text)
    first = "cifar10-wide_resnet_28_10-s0-d0.2, cifar10-wide_resnet_28_10-s0-d0.1, cifar10-wide_resnet_28_10-s1-d0.2"
    assert f"Error: 10 cells failed ({first} and 7 more): No cifar-10-batches-py in {tmp_path / 'nothing'}." in text
    assert "leave --data out: then it is downloaded" in text
    assert text.count("No cifar-10-batches-py") == 2  # when it happens and in the end
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
    wild = replace(RECIPES["smoke"], networks=("tiny_vgg",), training=Hyperparameters(1, batch=40, rate=1e20, weight_decay=0))
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
            "The GPU's memory is full: CUDA out of memory. Tried to allocate 2.00 GiB. End what else runs there, or use "
            "--device cpu.",
        ),
        (MemoryError(), "The memory is full. End what else runs here."),
        (FloatingPointError("Training diverged."), "Training diverged."),
        (PermissionError(13, "Permission denied", "/proc/x"), "/proc/x: Permission denied."),
        (DataError("No images."), "No images."),
    ],
)
def test_what_a_user_can_mend_is_told_in_a_sentence(fault: Exception, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, faults_in_words():
        raise fault
    assert end.value.code == 1
    assert capsys.readouterr().err == f"Error: {words}\n"


def test_a_mistake_in_the_code_keeps_its_traceback() -> None:
    with pytest.raises(KeyError), faults_in_words():
        raise KeyError("name")


def test_status_has_a_line_for_each_cell(tmp_path: Path) -> None:
    for cell in RECIPES["low_data"].cells()[:7]:
        finish(tmp_path, RECIPES["low_data"], cell)
    code, text = call("status", "low_data", "--seeds", "0", "--runs", tmp_path / "runs", "--results", tmp_path)
    assert code == 0
    lines = text.splitlines()
    assert (len(lines), lines[7]) == (30, "cifar10-resnet18-s0-t0.5  trained 0%")
    assert lines[0].startswith("cifar10-vgg16-s0-t0.25  done, lacks: network, temperature, ")


def test_seeds_are_numbers_and_ranges() -> None:
    assert parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert parse_seeds("7,0-1") == [7, 0, 1]


@pytest.mark.parametrize("name", ["tables", "figures", "search", "timing"])
def test_commands_with_a_parser_of_their_own_explain_themselves(name: str) -> None:
    code, text = call(name, "--help")
    assert code == 0
    assert "--out" in text
