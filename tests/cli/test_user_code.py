"""`--model` and `--data`: what a user's code gives is found, checked, and kept apart from results."""

import json
import re
import sys
from pathlib import Path

import pytest
import typer

from lates.cli.user_code import call_named, find_named, first_inputs, make_loaders, make_network
from tests.cli.commands import CALIBRATION, error_of, run, sources
from tests.cli_problem import Folder


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
def test_wrong_sources_are_named(folder: Folder, model: str, data: str, message: str) -> None:
    named = [name if ":" in name else folder.name(name) for name in (model, data)]
    options = ["--model", named[0], "--data", named[1], "--checkpoint", folder.weights, "-o", CALIBRATION]
    printed = error_of("calibrate", *options)
    assert message in printed
    assert printed.startswith(("Error: --model", "Error: --data", "Error: The holdout", f"Error: {folder.weights}"))
    assert "Traceback" not in printed
    assert list(Path().iterdir()) == []


def test_prints_of_the_users_code_go_to_standard_error(folder: Folder) -> None:
    result = run("calibrate", *sources(folder, model="make_talker"), "-o", CALIBRATION, "--blocks", "none", "--json")
    assert json.loads(result.stdout)["file"] == CALIBRATION
    assert result.stderr.startswith("loading …\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, not importable yet; modules that a test imports are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


@pytest.mark.parametrize("source", ["alone", "alone.py", "folder/alone.py", "package/inner/alone.py"])
def test_modules_are_found_by_name_and_by_path_and_run_once(here: Path, source: str) -> None:
    place = here / (source if source.endswith(".py") else f"{source}.py")
    place.parent.mkdir(parents=True, exist_ok=True)
    text = "import beside\n\nmade = []\n\n\ndef make():\n    return made\n"
    (place.parent / "beside.py").write_text("print('imported')")
    if "package" in source:
        for folder in (here / "package", here / "package" / "inner"):
            (folder / "__init__.py").touch()
        text = f"from . import beside as relative\n{text}"
    place.write_text(text)
    assert call_named(f"{source}:make", "--model") is find_named(f"{source}:made", "--data")


def test_a_path_whose_module_name_is_taken_is_refused(here: Path) -> None:
    (here / "json.py").write_text("WHERE = 1")
    with pytest.raises(ValueError, match=r'json\.py:WHERE: the module name "json" is taken by .*Rename the file'):
        find_named("json.py:WHERE", "--model")
    with pytest.raises(ValueError, match=r"--model \.\./nowhere\.py:f: there is no file .*nowhere\.py\."):
        find_named("../nowhere.py:f", "--model")


def test_sources_need_a_module_and_a_name() -> None:
    for source in ("json:", ":loads", "json"):
        with pytest.raises(typer.BadParameter, match=f'"{source}": expected module:function'):
            find_named(source, "--model")


@pytest.mark.parametrize("source", ["needing:make", "needing.py:make"])
@pytest.mark.parametrize(
    ("text", "message"),
    [("import need", "raised ModuleNotFoundError: No module named 'need'"), ("1 / 0", "raised ZeroDivisionError: ")],
)
def test_errors_inside_a_module_are_reported_every_time(here: Path, source: str, text: str, message: str) -> None:
    (here / "needing.py").write_text(text)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"--model {source} {message}"):
            find_named(source, "--model")


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("from json import loads\n\n\ndef make(): ...\n\n\ndef _inside(): ...\n", "It has make."),
        ("make = 3", "It has no function of its own."),
    ],
)
def test_a_missing_name_is_answered_with_the_functions_of_the_module(here: Path, text: str, listed: str) -> None:
    (here / "theirs.py").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f'module "theirs" has no "_inside_out". {listed}')):
        find_named("theirs:_inside_out", "--model")


def test_a_network_needs_no_function_around_it(here: Path) -> None:
    (here / "ready.py").write_text("from torch import nn\n\nnetwork = nn.Linear(2, 3)\n")
    assert make_network("ready:network", None, None) is find_named("ready:network", "--model")


def test_loaders_come_as_tuple_or_dict_and_every_test_set_is_checked(here: Path) -> None:
    (here / "theirs.py").write_text(
        "rows = [([[1.0]], [0])]\npair = (rows, rows)\nlone = {'test': rows}\nodd = {'test': {'fog': 3}}\n"
        "once = {'test': {'fog': iter(rows)}}\n"
    )
    assert list(make_loaders("theirs:pair", "holdout")) == ["train", "holdout"]
    assert list(make_loaders("theirs:lone", "test")["test"]) == ["test"]
    with pytest.raises(ValueError, match="gave a int as fog"):
        make_loaders("theirs:odd", "test")
    with pytest.raises(TypeError, match=r"The fog loader .* can be read only once"):
        make_loaders("theirs:once", "test")


def test_first_inputs_prefer_the_test_set(here: Path) -> None:
    (here / "theirs.py").write_text(
        "import torch\n\nlabels = torch.zeros(1).long()\n"
        "train, holdout, test = ([(torch.full((1, 1), value), labels)] for value in (0.0, 1.0, 2.0))\n"
        "all = {'test': {'plain': test}, 'train': train, 'holdout': holdout}\n"
        "pair = {'holdout': holdout, 'train': train}\nlone = {'train': train}\nnone = {}\n"
    )
    for name, value in {"all": 2, "pair": 1, "lone": 0}.items():
        assert first_inputs(f"theirs:{name}").item() == value
    with pytest.raises(ValueError, match="--data theirs:none gave nothing; this command needs test"):
        first_inputs("theirs:none")
