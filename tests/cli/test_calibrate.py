"""`lates calibrate` on a user's module: it writes what the library computes, and its options mean the same."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import lates
from tests.cli.commands import CALIBRATION, calibrate, error_of, results_of, run, sources, their
from tests.cli_problem import Folder


def test_calibrate_writes_the_calibration_of_the_library(folder: Folder) -> None:
    result = calibrate(folder)
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    expected = lates.calibrate(network, train=loaders["train"], holdout=loaders["holdout"], budget=None, progress=False)
    assert lates.load(CALIBRATION, network).weights == expected.weights
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
        (["--views", "swap", "--holdout-views", "noise"], {"views": "swap", "holdout_views": "noise"}),
        (["--views", "swap", "--expect-shift"], {"views": "swap", "expect_shift": True}),
        (["--holdout-views", "their_module:mirror"], {"holdout_views": lambda rows: -rows}),
        (["--paper", "--views", "none"], {"settings": lates.PAPER, "views": None}),
    ],
)
def test_options_mean_what_they_mean_in_python(folder: Folder, arguments: list[str], options: dict[str, Any]) -> None:
    result = calibrate(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    options = {"budget": None, **options}
    expected = lates.calibrate(network, train=loaders["train"], holdout=loaders["holdout"], progress=False, **options)
    contents = json.loads(result.stdout)
    assert {member["name"]: member["weight"] for member in contents["members"]} == pytest.approx(expected.weights)
    assert contents["fit"]["unbounded"] is False


def test_the_tokenizer_is_what_the_function_returns(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, plain = [], lates.calibrate

    def record(*arguments: Any, tokenizer: object, **options: Any) -> lates.CalibratedModel:
        seen.append(tokenizer)
        return plain(*arguments, **options)

    monkeypatch.setattr(lates, "calibrate", record)
    assert calibrate(folder, "--tokenizer", folder.name("make_nothing")).exit_code == 0
    assert seen == ["a network"]


def test_temperature_scaling_needs_no_training_split(folder: Folder) -> None:
    command = ["calibrate", *sources(folder, data="make_holdout"), "-o", CALIBRATION]
    assert "pass train=" in error_of(*command)
    assert [member["name"] for member in results_of(*command, "--blocks", "none")["members"]] == ["head"]


@pytest.mark.parametrize(("model", "copies"), [("make_ensemble", 2), ("make_dropout", 1)])
def test_ensembles_and_mc_dropout_are_calibrated_evaluated_and_inspected(folder: Folder, model: str, copies: int) -> None:
    given = ["--model", folder.name(model), "--data", folder.name("make_loaders")]
    given += ["--checkpoint", str(folder.weights)] * copies
    assert run("calibrate", *given, "-o", CALIBRATION, "--budget", "none").exit_code == 0
    plain = results_of("evaluate", CALIBRATION, *given)["sets"][0]["measured"]
    assert plain["lates"]["nll"]["value"] < plain["network"]["nll"]["value"]
    contents = results_of("inspect", CALIBRATION)
    assert (len(contents["networks"]), contents["samples"]) == (copies, 1 if copies == 2 else 3)
    assert sum(member["contribution"] for member in contents["members"]) == pytest.approx(1)
    assert max(map(len, run("inspect", CALIBRATION).stdout.splitlines())) <= 80


def test_blocks_take_a_bare_number_as_a_name(folder: Folder) -> None:
    text = "from torch import nn\n\n\ndef make():\n    return nn.Sequential("
    text += "nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 4))\n"
    Path("numbered.py").write_text(text)
    given = ["--model", "numbered.py:make", "--data", folder.name("make_loaders"), "-o", CALIBRATION]
    contents = results_of("calibrate", *given, "--budget", "none", "--blocks", "0")
    assert [member["name"] for member in contents["members"]] == ["0", "head"]


def test_a_wrong_block_is_answered_with_the_right_ones(folder: Folder) -> None:
    result = calibrate(folder, "--blocks", "layer9")
    assert result.exit_code == 1
    assert result.stderr == 'Error: Unknown block "layer9". Blocks of this model: first.1, second.1.\n'


def test_the_next_command_can_be_copied(folder: Folder) -> None:
    result = calibrate(folder, output="my own.safetensors")
    _, text = result.stderr.split("\nNext:\n")
    lines = text.splitlines()
    assert all(line.endswith(" \\") for line in lines[:-1])
    program, *arguments = shlex.split(text.replace("\\\n", ""))
    assert (program, arguments[:2]) == ("lates", ["evaluate", "my own.safetensors"])
    assert run(*arguments).exit_code == 0
