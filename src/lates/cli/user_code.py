"""What the user's code gives the commands: a network and loaders, by `module:function`."""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import typer
from torch import nn

from lates.cli.checkpoint import load_checkpoint
from lates.model import CalibratedModel, OtherWeightsWarning, load, read_saved
from lates.network import check_loader, read_batches, read_ensemble

Network = nn.Module | Sequence[nn.Module]
ROLES = ("train", "holdout", "test")
CONTRACT = (
    'Expected {"train": loader, "holdout": loader, "test": loader or {name: loader}}, or a tuple in this order; what '
    "the command does not need may be missing."
)


def find_named(source: str, option: str) -> Any:
    """The object that `module:name` or `folder/file.py:name` names; the current folder can be imported from."""
    holder, _, name = source.rpartition(":")
    if not holder or not name:
        raise typer.BadParameter(f'"{source}": expected module:function, as in my_module:make_it.', param_hint=option)
    file = Path(holder).resolve() if holder.endswith(".py") else None
    if file is not None and not file.is_file():
        raise ValueError(f"{option} {source}: there is no file {file}.")
    sys.path.insert(0, os.getcwd())
    module_name = holder if file is None else importable_name(file)
    try:
        with redirect_stdout(sys.stderr):  # standard output is for results, and the user's code may print
            module = import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(
                f'{option} {source}: there is no module "{holder}" in {os.getcwd()} or among the installed packages.'
            ) from error
        raise failed(option, source, error) from error
    if file is not None and module.__file__ != str(file):
        raise ValueError(
            f'{option} {source}: the module name "{module_name}" is taken by {module.__file__ or "Python itself"}. '
            "Rename the file."
        )
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        functions = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
        nearest = "".join(f' Did you mean "{key}"?' for key in get_close_matches(name, functions, n=1))
        raise ValueError(
            f'{option} {source}: module "{module.__name__}" has no "{name}".{nearest} It has '
            f"{', '.join(functions) or 'no function of its own'}."
        ) from error


def importable_name(file: Path) -> str:
    """The name of a file's module: dotted where its folder is a package. Modules beside it become importable too."""
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    sys.path[:0] = [str(root), str(file.parent)]
    return ".".join(file.relative_to(root).with_suffix("").parts)


def call_named(source: str, option: str) -> Any:
    """What the function `module:name` returns; an object that is no function, such as a network, is returned itself."""
    named = find_named(source, option)
    if not callable(named) or isinstance(named, nn.Module):
        return named
    try:
        with redirect_stdout(sys.stderr):
            return named()
    except Exception as error:
        raise failed(option, source, error) from error


def failed(option: str, source: str, error: Exception) -> ValueError:
    """The user's code raised an error: without its source the message would look like one of `lates`."""
    return ValueError(f"{option} {source} raised {type(error).__name__}: {error}\n`lates --debug …` shows where.")


def make_network(source: str, checkpoints: Sequence[Path] | None, device: str | None) -> Network:
    """The user's network, or networks, with the weights of the checkpoints, on the device."""
    made = call_named(source, "--model")
    try:
        networks = read_ensemble(made).networks
    except TypeError as error:
        raise ValueError(f"--model {source} gave no network. {error}") from error
    if checkpoints and len(checkpoints) != len(networks):
        raise ValueError(
            f"--model {source} gave {len(networks)} network(s); --checkpoint came {len(checkpoints)} time(s). Pass it once "
            "for each network."
        )
    for network, checkpoint in zip(networks, checkpoints or (), strict=False):
        load_checkpoint(network, checkpoint)
    for network in networks:
        try:
            network.to(device)
        except (RuntimeError, AssertionError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f'--device {device}: not usable here ({reason}). "cpu" always is.') from error
    return made


def load_calibrated(
    file: Path, model: str, checkpoints: Sequence[Path] | None, device: str | None, other_weights: bool
) -> CalibratedModel:
    """The calibration of a file on the user's network; a wrong file is refused before the network is made.

    Weights that differ from those at calibration mostly mean a forgotten checkpoint: an error, unless allowed.
    """
    read_saved(file)
    network = make_network(model, checkpoints, device)
    with warnings.catch_warnings():
        warnings.simplefilter("always" if other_weights else "error", OtherWeightsWarning)
        try:
            return load(file, network)
        except OtherWeightsWarning as error:
            cause = "Is --checkpoint the same as then?" if checkpoints else "Did you forget --checkpoint?"
            raise ValueError(
                f"The network's weights differ from those it was calibrated with. {cause} If they are meant to differ, pass "
                f"--other-weights.\n{error}"
            ) from error


def make_loaders(source: str, *needed: str) -> dict[str, Any]:
    """The user's loaders by role, each of which can be read more than once; one of the roles needed is among them.

    `test` is a dict by name, first the plain test set, then shifted ones.
    """
    made = call_named(source, "--data")
    if isinstance(made, tuple | list) and len(made) in (2, 3):
        made = dict(zip(ROLES, made, strict=False))
    if not isinstance(made, Mapping) or not set(made) <= set(ROLES):
        received = f"keys {', '.join(map(str, made))}" if isinstance(made, Mapping) else f"a {type(made).__name__}"
        raise ValueError(f"--data {source} gave {received}. {CONTRACT}")
    loaders = {role: made[role] for role in ROLES if made.get(role) is not None}
    test = loaders.pop("test", {})
    tests = {str(name): loader for name, loader in test.items()} if isinstance(test, Mapping) else {"test": test}
    for role, loader in {**loaders, **tests}.items():
        if not isinstance(loader, Iterable):
            raise ValueError(f"--data {source} gave a {type(loader).__name__} as {role}. {CONTRACT}")
        check_loader(loader, role)
    if tests:
        loaders["test"] = tests
    if loaders.keys().isdisjoint(needed):
        given = ", ".join(loaders) or "nothing"
        raise ValueError(f"--data {source} gave {given}; this command needs {needed[0]}. {CONTRACT}")
    return loaders


def first_inputs(source: str) -> Any:
    """The inputs of one batch, to show how the network is called: of a test set if there is one."""
    role, loader = make_loaders(source, *reversed(ROLES)).popitem()
    if role == "test":
        loader = next(iter(loader.values()))
    inputs, _ = next(iter(read_batches(loader, torch.device("cpu"), role)))
    return inputs
