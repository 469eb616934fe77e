"""`lates calibrate` on a user's own module: it writes what the library would, and its options mean the same."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import lates
from lates.cli.outputs import continued
from tests.cli.commands import CALIBRATION, calibrate, run, sources, their
from tests.cli_problem import Folder


def test_calibrate_writes_what_the_library_would_and_says_where(folder: Folder) -> None:
    result = calibrate(folder)
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    expected = lates.calibrate(network, train=loaders["train"], holdout=loaders["holdout"], budget=None, progress=False)
    loaded = lates.load(CALIBRATION, network)
    assert loaded.weights == expected.weights
    assert result.stdout == f"{expected}\n"
    assert result.stderr.startswith(f"Wrote {CALIBRATION}, ")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--blocks", "last:1", "--views", "none"], {"blocks": 1, "views": None}),
        (["--blocks", "first.1, second.1", "--loss", "brier"], {"blocks": ["first.1", "second.1"], "loss": "brier"}),
        (["--blocks", "none"], {"blocks": []}),
        (["--budget", "20%", "--memory", "1K", "--seed", "3"], {"budget": 0.2, "memory": 1024, "seed": 3}),
        (["--views", "their_module:mirror", "--passes", "2"], {"views": lambda rows: -rows, "passes": 2}),
        (["--holdout-views", "their_module:mirror"], {"holdout_views": lambda rows: -rows}),
        (["--paper"], {"settings": lates.PAPER, "views": "auto"}),
    ],
)
def test_options_mean_what_they_mean_in_python(folder: Folder, arguments: list[str], options: dict[str, Any]) -> None:
    if "--paper" in arguments:
        arguments, options = [*arguments, "--views", "none"], {**options, "views": None}
    result = calibrate(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    options = {"budget": None, **options}
    expected = lates.calibrate(network, train=loaders["train"], holdout=loaders["holdout"], progress=False, **options)
    printed = {member["name"]: member["weight"] for member in json.loads(result.stdout)["members"]}
    assert printed == pytest.approx(expected.weights)


def test_temperature_scaling_needs_no_training_split(folder: Folder) -> None:
    options = ["-o", CALIBRATION, "--json"]
    refused = run("calibrate", *sources(folder, data="make_holdout"), *options)
    assert refused.exit_code == 1
    assert "pass train=" in refused.stderr
    result = run("calibrate", *sources(folder, data="make_holdout"), *options, "--blocks", "none")
    assert [member["name"] for member in json.loads(result.stdout)["members"]] == ["head"]


@pytest.mark.parametrize(("model", "copies"), [("make_ensemble", 2), ("make_dropout", 1)])
def test_ensembles_and_mc_dropout(folder: Folder, model: str, copies: int) -> None:
    own = ["--model", folder.name(model), "--data", folder.name("make_loaders")]
    own += ["--checkpoint", str(folder.weights)] * copies
    assert run("calibrate", *own, "-o", CALIBRATION, "--budget", "none").exit_code == 0
    result = run("evaluate", CALIBRATION, *own, "--json")
    plain = json.loads(result.stdout)["sets"][0]["measured"]
    assert plain["lates"]["nll"]["value"] < plain["network"]["nll"]["value"]
    contents = json.loads(run("inspect", CALIBRATION, "--json").stdout)
    assert (len(contents["networks"]), contents["samples"]) == (copies, 1 if copies == 2 else 3)
    assert sum(member["contribution"] for member in contents["members"]) == pytest.approx(1)
    assert max(map(len, run("inspect", CALIBRATION).stdout.splitlines())) <= 80


def test_json_says_whether_the_weights_stopped_at_their_cap(folder: Folder) -> None:
    fit = json.loads(calibrate(folder, "--json").stdout)["fit"]
    assert fit["at_cap"] is False
    assert "bounded" not in fit


def test_a_bare_number_is_a_block_s_name_and_never_a_count(folder: Folder) -> None:
    result = run("calibrate", *numbered(folder), "--blocks", "0", "--json")
    assert result.exit_code == 0, result.output
    assert [member["name"] for member in json.loads(result.stdout)["members"]] == ["0", "head"]
    for text, advice in {"2": "last:2 takes the last 2", "last:few": "expected a number"}.items():
        refused = calibrate(folder, "--blocks", text, output="other.safetensors")
        assert refused.exit_code == 2
        assert advice in " ".join(refused.stderr.replace("│", "").split())


def numbered(folder: Folder) -> list[object]:
    """A network whose blocks are named 0, 1, …"""
    text = "from torch import nn\n\n\ndef make():\n    return nn.Sequential("
    text += "nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 4))\n"
    Path("numbered.py").write_text(text)
    return ["--model", "numbered.py:make", "--data", folder.name("make_loaders"), "-o", CALIBRATION, "--budget", "none"]


def test_a_wrong_block_is_answered_with_the_right_ones(folder: Folder) -> None:
    result = calibrate(folder, "--blocks", "layer9")
    assert result.exit_code == 1
    assert result.stderr == 'Error: Unknown block "layer9". Blocks of this model: first.1, second.1.\n'


@pytest.mark.parametrize(
    ("option", "value"),
    [("--budget", "much"), ("--memory", "lots"), ("--loss", "hinge"), ("--model", "their_module")],
)
def test_wrong_values_exit_with_2(folder: Folder, option: str, value: str) -> None:
    result = calibrate(folder, option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert value in result.stderr


@pytest.mark.parametrize("device", ["gpu", "cuda:77"])
def test_a_device_that_is_not_there_is_named(folder: Folder, device: str) -> None:
    result = calibrate(folder, "--device", device)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: --device {device}: not usable here (")


def test_what_to_do_next_can_be_copied(folder: Folder) -> None:
    result = calibrate(folder, output="my own.safetensors")
    _, told = result.stderr.split("\nNext:\n")
    lines = told.splitlines()
    assert all(len(line) <= 80 or line.strip().count(" ") <= 2 for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1])
    program, *arguments = shlex.split(told.replace("\\\n", ""))
    assert (program, arguments[:2]) == ("lates", ["evaluate", "my own.safetensors"])
    assert run(*arguments).exit_code == 0


@pytest.mark.parametrize(("length", "lines"), [(37, 2), (38, 3)])
def test_a_command_fills_its_lines_with_their_backslash(length: int, lines: int) -> None:
    text = continued([["a" * 40], ["b" * length], ["c" * 60]])
    assert len(text.splitlines()) == lines
    assert max(map(len, text.splitlines())) <= 80
