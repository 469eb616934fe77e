"""A run on disk: written whole or not at all, as safetensors with JSON, never pickle."""

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from experiments.data.files import write_whole


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """A safetensors file whose header carries `facts` as JSON."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, safetensors.torch.save(plain, {"lates": json.dumps(facts)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What `save_tensors` wrote, or None if there is no such file; a damaged one is put aside with a warning."""
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()["lates"])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (not a mapping)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        aside = path.with_name(path.name + ".damaged")
        os.replace(path, aside)
        warnings.warn(f"{path} cannot be read ({error}); it was renamed to {aside.name} and is ignored.", stacklevel=2)
        return None


@dataclass(frozen=True)
class Progress:
    """Where a run stands, in steps; the mean training loss of each epoch so far; seconds over all its lives."""

    step: int
    steps: int
    losses: tuple[float, ...]
    seconds: float

    @property
    def finished(self) -> bool:
        return self.step == self.steps


@dataclass(frozen=True)
class RunFolder:
    """A run on disk: a checkpoint while it goes on, the network when it is done; both say whose they are."""

    path: Path
    identity: Mapping[str, Any]

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def finished(self) -> Path:
        return self.path / "network.safetensors"

    def save_checkpoint(self, tensors: Mapping[str, Tensor], progress: Progress) -> None:
        save_tensors(self.checkpoint, tensors, {**self.identity, "progress": asdict(progress)})

    def load_checkpoint(self) -> tuple[dict[str, Tensor], Progress] | None:
        return self._load(self.checkpoint)

    def save_finished(self, network: nn.Module, progress: Progress) -> None:
        save_tensors(self.finished, network.state_dict(), {**self.identity, "progress": asdict(progress)})
        self._tidy()

    def load_finished(self, network: nn.Module) -> Progress | None:
        if (stored := self._load(self.finished)) is None:
            return None
        tensors, progress = stored
        network.load_state_dict(tensors)
        self._tidy()
        return progress

    def _load(self, path: Path) -> tuple[dict[str, Tensor], Progress] | None:
        if (stored := load_tensors(path)) is None:
            return None
        tensors, facts = stored
        for name, expected in self.identity.items():
            if facts.get(name) != expected:
                raise ValueError(
                    f"{path} is of another run: its {name} is {facts.get(name)}, this run's is {expected}. "
                    f"Choose another folder or remove the file."
                )
        return tensors, Progress(**{**facts["progress"], "losses": tuple(facts["progress"]["losses"])})

    def _tidy(self) -> None:
        """Remove what a finished run no longer needs; also after it was killed just before it could."""
        for leftover in (self.checkpoint, self.checkpoint.with_name(self.checkpoint.name + ".partial")):
            leftover.unlink(missing_ok=True)
