"""`--model` and `--data`: what a user's code gives is found, checked, and kept apart from results."""

import json
import sys
from pathlib import Path

import pytest

from lates.cli.sources import find_named
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
    assert find_named("../named_alike.py:WHERE", "--model") == "above"
    with pytest.raises(ValueError, match=r"--model \.\./nowhere\.py:f: there is no file .*nowhere\.py\."):
        find_named("../nowhere.py:f", "--model")
