"""What the user's own code gives the commands: a network and loaders, by `module:function`."""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import typer
from torch import nn

from lates.batches import check_loader, read_batches
from lates.cli.checkpoint import load_checkpoint
from lates.cli.fitted import is_fitted
from lates.model import CalibratedModel, load
from lates.sampling import read_draws
from lates.storage import OtherWeightsWarning, read_calibration

Network = nn.Module | Sequence[nn.Module]
ROLES = ("train", "holdout", "test")
CONTRACT = (
    'Expected {"train": loader, "holdout": loader, "test": loader or {name: loader}}, or a tuple in this order; what '
    "the command does not need may be missing."
)


def find_named(source: str, option: str) -> Any:
    """What `module:name` names, with the current folder importable, or `folder/file.py:name` in just that file."""
    place, _, name = source.rpartition(":")
    if not place or not name:
        raise typer.BadParameter(f'"{source}": expected module:function, as in my_module:make_it.', param_hint=option)
    make_importable(Path.cwd())
    try:
        with redirect_stdout(sys.stderr):  # standard output is for results; user's code may print
            module = import_file(Path(place)) if place.endswith(".py") else import_module(place)
    except NoSuchFileError as fault:
        raise ValueError(f"{option} {source}: {fault}") from fault
    except ModuleNotFoundError as fault:
        if fault.name and f"{place}.".startswith(f"{fault.name}."):
            raise ValueError(
                f'{option} {source}: there is no module "{place}" in {os.getcwd()} or among the installed packages.'
            ) from fault
        raise failed(option, source, fault) from fault
    except Exception as fault:
        raise failed(option, source, fault) from fault
    try:
        return attrgetter(name)(module)
    except AttributeError as fault:
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
        nearest = "".join(f' Did you mean "{key}"?' for key in get_close_matches(name, own, n=1))
        raise ValueError(
            f'{option} {source}: module "{module.__name__}" has no "{name}".{nearest} It has '
            f"{', '.join(own) or 'no function of its own'}."
        ) from fault


class NoSuchFileError(Exception):
    pass


def import_file(path: Path) -> ModuleType:
    """The module in a file, as Python would run it: what lies beside it can be imported.

    Its name is the dotted path below the current folder, so that relative imports work; elsewhere, the file's own name.
    One that another file has taken already, such as an installed package, is left to that file.
    """
    file = path.resolve()
    if not file.is_file():
        raise NoSuchFileError(f"there is no file {file}.")
    inside = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else Path(file.name)
    name = ".".join(inside.with_suffix("").parts)
    for known in (name, unique := "_".join(file.with_suffix("").parts[1:])):
        if getattr(sys.modules.get(known), "__file__", None) == str(file):
            return sys.modules[known]
    if name in sys.modules:
        name = unique
    make_importable(file.parent)
    spec = spec_from_file_location(name, file)
    assert spec is not None  # nor is its loader, for a name ending in .py
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def call_named(source: str, option: str) -> Any:
    """What the function `module:name` returns; anything that is no function, such as a network, is taken as it is."""
    found = find_named(source, option)
    if not callable(found) or isinstance(found, nn.Module):
        return found
    try:
        with redirect_stdout(sys.stderr):
            return found()
    except Exception as fault:
        raise failed(option, source, fault) from fault


def failed(option: str, source: str, fault: Exception) -> ValueError:
    """The user's code raised: say so, for the message alone would look like one of `lates`."""
    told = f"{type(fault).__name__}: {fault}"
    return ValueError(f"{option} {source} raised {told}\n`lates --debug …` shows where.")


def make_network(source: str, checkpoints: Sequence[Path] | None, device: str | None) -> Network:
    """The user's network, or networks, with the weights of the checkpoints, on the device."""
    made = call_named(source, "--model")
    try:
        networks = read_draws(made).networks
    except TypeError as fault:
        raise ValueError(f"--model {source} gave no network. {fault}") from fault
    if checkpoints and len(checkpoints) != len(networks):
        raise ValueError(
            f"--model {source} gave {len(networks)} network(s); --checkpoint came {len(checkpoints)} time(s). Pass it once "
            "for each network."
        )
    for network, checkpoint in zip(networks, checkpoints or (), strict=False):
        load_checkpoint(network, checkpoint)
    if device is not None:
        for network in networks:
            move_to(network, device)
    return made


def load_calibrated(
    file: Path, model: str, checkpoints: Sequence[Path] | None, device: str | None, other_weights: bool
) -> CalibratedModel:
    """The calibration of a file on the user's network; a wrong file is told before the network is made.

    Weights that differ from those at calibration are mostly a checkpoint that was forgotten: an error, unless meant.
    """
    _, metadata = read_calibration(file)
    if is_fitted(metadata):
        raise ValueError(
            f"{file} holds weights for cached logits, by `lates fit`; expected what `lates calibrate` wrote."
        )
    network = make_network(model, checkpoints, device)
    with warnings.catch_warnings():
        warnings.simplefilter("always" if other_weights else "error", OtherWeightsWarning)
        try:
            return load(file, network)
        except OtherWeightsWarning as fault:
            cause = "Is --checkpoint the one of then?" if checkpoints else "Did you forget --checkpoint?"
            raise ValueError(
                f"The network's weights differ from those it was calibrated with. {cause} If they are meant to differ, pass "
                f"--other-weights.\n{fault}"
            ) from fault


def move_to(network: nn.Module, device: str) -> None:
    try:
        network.to(torch.device(device))
    except (RuntimeError, AssertionError, ValueError) as fault:
        reason = str(fault).partition("\n")[0]
        raise ValueError(f'--device {device}: not usable here ({reason}). "cpu" always is.') from fault


@dataclass(frozen=True)
class Loaders:
    """The user's loaders by role; `test` by name, first the plain test set, then its shifts."""

    source: str
    train: Iterable[Any] | None = None
    holdout: Iterable[Any] | None = None
    test: Mapping[str, Iterable[Any]] = field(default_factory=dict)

    @property
    def needed_holdout(self) -> Iterable[Any]:
        if self.holdout is None:
            raise self._lacking("holdout")
        return self.holdout

    @property
    def needed_test(self) -> Mapping[str, Iterable[Any]]:
        if not self.test:
            raise self._lacking("test")
        return self.test

    @property
    def first_inputs(self) -> Any:
        """The inputs of one batch, to show how the network is called."""
        for role, loader in {**self.test, "holdout": self.holdout, "train": self.train}.items():
            if loader is not None:
                return next(iter(read_batches(loader, torch.device("cpu"), role))).inputs
        raise self._lacking("test")

    def _lacking(self, role: str) -> ValueError:
        roles = {"train": self.train, "holdout": self.holdout, "test": self.test or None}
        given = ", ".join(name for name, loader in roles.items() if loader is not None) or "nothing"
        return ValueError(f"--data {self.source} gave {given}; this command needs {role}. {CONTRACT}")


def make_loaders(source: str) -> Loaders:
    """The user's loaders, each checked to be something that can be read more than once."""
    made = call_named(source, "--data")
    if isinstance(made, tuple | list) and len(made) in (2, 3):
        made = dict(zip(ROLES, made, strict=False))
    if not isinstance(made, Mapping) or not set(made) <= set(ROLES):
        came = f"keys {', '.join(map(str, made))}" if isinstance(made, Mapping) else f"a {type(made).__name__}"
        raise ValueError(f"--data {source} gave {came}. {CONTRACT}")
    test = made.get("test")
    tests = dict(test) if isinstance(test, Mapping) else {} if test is None else {"test": test}
    for role, loader in {**made, "test": None, **tests}.items():
        if loader is not None and not isinstance(loader, Iterable):
            raise ValueError(f"--data {source} gave a {type(loader).__name__} as {role}. {CONTRACT}")
        if loader is not None:
            check_loader(loader, str(role))
    return Loaders(source, made.get("train"), made.get("holdout"), {str(name): own for name, own in tests.items()})
