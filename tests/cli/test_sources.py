"""`--model` and `--data`: what a user's code gives is found, checked, and kept apart from results."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from lates.cli.sources import Loaders, call_named, find_named, make_loaders, make_network
from tests.cli.commands import CALIBRATION, run, sources
from tests.cli_problem import MODULE, Folder


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("no_such_module:make", "make_loaders", 'there is no module "no_such_module" in'),
        (
            "make_modle",
            "make_loaders",
            'module "their_module" has no "make_modle". Did you mean "make_model"? It has Network, draw,',
        ),
        ("make_trouble", "make_loaders", "raised RuntimeError: the disk is full of cats"),
        ("make_nothing", "make_loaders", "gave no network. Expected an nn.Module, mc_dropout(…) or a list"),
        ("make_wide", "make_loaders", "other shape: first.0.weight is [24, 6], expected [32, 6]"),
        ("make_ensemble", "make_loaders", "gave 2 network(s); --checkpoint came 1 time(s)"),
        ("make_model", "make_validation", "gave keys train, validation. Expected"),
        ("make_model", "make_nothing", "gave a str. Expected"),
        ("make_model", "make_number", "gave a int as holdout. Expected"),
        ("make_model", "make_once", "can be read only once"),
    ],
)
def test_what_the_user_s_code_gives_is_checked(folder: Folder, model: str, data: str, message: str) -> None:
    named = [name if ":" in name else folder.name(name) for name in (model, data)]
    options = ["--model", named[0], "--data", named[1], "--checkpoint", folder.weights, "-o", CALIBRATION]
    result = run("calibrate", *options)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith(
        ("Error: --model", "Error: --data", "Error: The holdout", f"Error: {folder.weights}")
    )
    assert "Traceback" not in result.stderr
    assert list(Path().iterdir()) == []


def test_what_the_user_s_code_prints_does_not_mix_with_results(folder: Folder) -> None:
    result = run("calibrate", *sources(folder, model="make_talker"), "-o", CALIBRATION, "--blocks", "none", "--json")
    assert json.loads(result.stdout)["file"] == CALIBRATION
    assert result.stderr.startswith("loading …\n")


def test_a_file_s_path_names_its_module_too(folder: Folder) -> None:
    file = folder.path / f"{MODULE}.py"
    options = ["--model", f"{file}:make_model", "--checkpoint", folder.weights, "--data", f"{file}:make_loaders"]
    result = run("calibrate", *options, "-o", CALIBRATION, "--blocks", "none")
    assert result.exit_code == 0, result.output


def test_a_path_means_that_file_and_no_other_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "beside.py").write_text("HERE = 'above'")
    for place, value in {
        "named_alike.py": "beside.HERE",
        "below/named_alike.py": "'below'",
        "json.py": "'json'",
    }.items():
        (tmp_path / place).write_text(f"import beside\n\nWHERE = {value}\n")
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert find_named("../named_alike.py:WHERE", "--model") == "above"
    assert find_named("named_alike.py:WHERE", "--model") == "below"
    assert find_named("./named_alike.py:WHERE", "--model") == "below"
    assert find_named(f"{tmp_path}/json.py:WHERE", "--model") == "json"
    assert sys.modules["json"] is json
    assert find_named("../named_alike.py:WHERE", "--model") == "above"
    with pytest.raises(ValueError, match=r"--model \.\./nowhere\.py:f: there is no file .*nowhere\.py\."):
        find_named("../nowhere.py:f", "--model")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, which cannot be imported from yet; modules that a test imports are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_a_module_of_the_current_folder_is_found_and_run_once(here: Path) -> None:
    (here / "only_here.py").write_text("made = []\n\n\ndef make():\n    return made\n")
    assert call_named("only_here:make", "--model") is find_named("only_here:made", "--data")
    (here / "by_path.py").write_text("made = []\n\n\ndef make():\n    return made\n")
    assert call_named("by_path.py:make", "--model") is find_named("by_path.py:made", "--data")


def test_a_module_without_a_name_in_it_is_no_source() -> None:
    for source in ("json:", ":loads", "json"):
        with pytest.raises(typer.BadParameter, match=f'"{source}": expected module:function'):
            find_named(source, "--model")


def test_what_a_module_prints_when_imported_is_no_result(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "talks.py").write_text("print('hello')\nWHERE = 1\n")
    assert find_named("talks:WHERE", "--model") == 1
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("source", ["needing:make", "needing.py:make"])
@pytest.mark.parametrize(
    ("text", "told"),
    [("import need", "raised ModuleNotFoundError: No module named 'need'"), ("1 / 0", "raised ZeroDivisionError: ")],
)
def test_what_breaks_inside_a_module_is_its_own_fault_every_time(here: Path, source: str, text: str, told: str) -> None:
    (here / "needing.py").write_text(text)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"--model {source} {told}"):
            find_named(source, "--model")


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("from json import loads\n\n\ndef make(): ...\n\n\ndef _inside(): ...\n", "It has make."),
        ("make = 3", "It has no function of its own."),
    ],
)
def test_a_module_is_told_by_its_own_functions(here: Path, text: str, listed: str) -> None:
    (here / "theirs.py").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f'module "theirs" has no "_inside_out". {listed}')):
        find_named("theirs:_inside_out", "--model")


def test_a_network_that_is_there_is_taken_as_it_is(here: Path) -> None:
    (here / "ready.py").write_text("from torch import nn\n\nnetwork = nn.Linear(2, 3)\n")
    assert make_network("ready:network", None, None) is find_named("ready:network", "--model")


def test_every_network_of_an_ensemble_is_moved(folder: Folder) -> None:
    networks = make_network(folder.name("make_ensemble"), None, "meta")
    assert isinstance(networks, list)
    assert all(value.is_meta for network in networks for value in network.parameters())


def test_one_checkpoint_too_many_is_refused(folder: Folder) -> None:
    with pytest.raises(ValueError, match=r"gave 1 network\(s\); --checkpoint came 2 time\(s\)"):
        make_network(folder.name("make_model"), [folder.weights] * 2, None)


def test_loaders_may_come_as_a_pair_and_each_test_set_is_checked(here: Path) -> None:
    (here / "theirs.py").write_text(
        "rows = [([[1.0]], [0])]\npair = (rows, rows)\nlone = {'test': rows}\nodd = {'test': {'fog': 3}}\n"
        "once = {'test': {'fog': iter(rows)}}\n"
    )
    pair, lone = make_loaders("theirs:pair"), make_loaders("theirs:lone")
    assert pair.train is pair.holdout is lone.test["test"]
    assert (dict(pair.test), lone.holdout) == ({}, None)
    with pytest.raises(ValueError, match="gave a int as fog"):
        make_loaders("theirs:odd")
    with pytest.raises(TypeError, match=r"The fog loader .* can be read only once"):
        make_loaders("theirs:once")


def test_the_first_inputs_are_those_of_a_test_set_before_all_others() -> None:
    rows: dict[str, Any] = {
        role: [(torch.full((1, 1), value), torch.zeros(1).long())]
        for value, role in enumerate(("train", "holdout", "test"))
    }
    loaders = Loaders("theirs:f", rows["train"], rows["holdout"], {"test": rows["test"]})
    assert loaders.first_inputs.item() == 2
    assert Loaders("theirs:f", rows["train"], rows["holdout"]).first_inputs.item() == 1
    assert Loaders("theirs:f", rows["train"]).first_inputs.item() == 0
    with pytest.raises(ValueError, match="--data theirs:f gave nothing; this command needs test"):
        _ = Loaders("theirs:f").first_inputs
