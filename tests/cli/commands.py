"""The command `lates` as the tests call it, with or without a user's module."""

import json
from importlib import import_module
from typing import Any

import torch
from typer.testing import CliRunner, Result

from lates.cli import app
from tests.cli_problem import MODULE, Folder

RUNNER = CliRunner(env={"COLUMNS": "80", "LATES_DEBUG": "", "TERM": "dumb"})
CALIBRATION = "their.lates.safetensors"


def run(*arguments: object, **environment: str) -> Result:
    return RUNNER.invoke(app, [str(argument) for argument in arguments], env=environment)


def results_of(*arguments: object) -> Any:
    """What the command prints with --json."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def error_of(*arguments: object, **environment: str) -> str:
    """What a command that fails prints to standard error; it prints nothing else."""
    result = run(*arguments, **environment)
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def sources(folder: Folder, model: str = "make_model", data: str = "make_loaders") -> list[object]:
    return ["--model", folder.name(model), "--checkpoint", folder.weights, "--data", folder.name(data)]


def calibrate(folder: Folder, *more: object, output: str = CALIBRATION) -> Result:
    return run("calibrate", *sources(folder), "-o", output, "--budget", "none", *more)


def their(folder: Folder) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The same network and loaders, made in Python."""
    module = import_module(MODULE)
    network = module.make_model()
    network.load_state_dict(torch.load(folder.weights, weights_only=True))
    return network.eval(), module.make_loaders()


def gathered(model: torch.nn.Module, loader: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        rows = [(model(inputs), labels) for inputs, labels in loader]
    return torch.cat([logits for logits, _ in rows]), torch.cat([labels for _, labels in rows])
