"""A run on disk: written whole or not at all, as safetensors with JSON, never pickle."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from experiments.data.files import DamagedError, format_json, parse_json, write_whole
from experiments.training.hyperparameters import without_defaults

KEY = "lates"
"""The key of the safetensors metadata that holds the facts, as JSON."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """A safetensors file whose header carries `facts` as JSON."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, safetensors.torch.save(plain, {KEY: format_json(facts).decode()}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What `save_tensors` wrote, or None if there is no such file."""
    if not path.exists():
        return None
    facts = read_facts(path)
    return safetensors.torch.load_file(path), facts


def read_facts(path: Path) -> dict[str, Any]:
    """The facts in a file's header, without its tensors."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return parse_json((file.metadata() or {}).get(KEY, "null"))
    except (safetensors.SafetensorError, DamagedError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> DamagedError:
    return DamagedError(f"{path} is damaged ({reason}). Remove it: the run then goes on without it.")


def check_shapes(stored: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors of another network: other names or other shapes."""
    found, needed = ({name: tuple(tensor.shape) for name, tensor in part.items()} for part in (stored, expected))
    if found != needed:
        name = min(name for name in found.keys() | needed.keys() if found.get(name) != needed.get(name))
        raise ValueError(
            f"{path} is of another network: its {name} has shape {found.get(name)}, here it has {needed.get(name)}. Choose "
            "another folder or remove the file."
        )


@dataclass(frozen=True)
class Progress:
    """How far a run is, in steps; the mean training loss of each epoch so far; seconds, those before restarts included."""

    step: int
    steps: int
    losses: tuple[float, ...]
    seconds: float

    @property
    def finished(self) -> bool:
        return self.step == self.steps

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> "Progress":
        """From the facts of a run's file."""
        return cls(**{**facts["progress"], "losses": tuple(facts["progress"]["losses"])})


@dataclass(frozen=True)
class RunFolder:
    """A run on disk: a checkpoint while it goes on, the network when it is done; both say whose they are.

    identity    what has to be the same in its files; nothing, to load whatever network is there
    """

    path: Path
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def finished(self) -> Path:
        return self.path / "network.safetensors"

    @property
    def half(self) -> Path:
        """The finished network in half the bytes; it serves where the other is missing."""
        return self.path / "network-half.safetensors"

    @property
    def trained(self) -> Path | None:
        """The file of a finished network, if there is one."""
        return next((path for path in (self.finished, self.half) if path.exists()), None)

    def save_half(self, network: nn.Module) -> None:
        """Beside the finished network; its convolutions and matrices in float16, all else as it is."""
        if not self.half.exists():
            tensors = {name: value.half() if value.dim() > 1 else value for name, value in network.state_dict().items()}
            save_tensors(self.half, tensors, read_facts(self.finished))

    def save(self, path: Path, tensors: Mapping[str, Tensor], progress: Progress) -> None:
        """One of both files; with the second the first goes."""
        save_tensors(path, tensors, {**self.identity, "progress": asdict(progress)})
        if path == self.finished:
            self._tidy()

    def load_finished(self, network: nn.Module) -> Progress | None:
        path = self.trained
        if path is None or (stored := self.load(path, network.state_dict())) is None:
            return None
        tensors, progress = stored
        network.load_state_dict(tensors)
        self._tidy()
        return progress

    def share_trained(self) -> float:
        """By the headers alone."""
        if self.trained is not None:
            return 1.0
        with suppress(OSError, DamagedError):
            progress = Progress.parse(read_facts(self.checkpoint))
            return progress.step / progress.steps
        return 0.0

    def load(self, path: Path, expected: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Progress] | None:
        """Tensors of the names and shapes of `expected`, and where the run stood."""
        if (stored := load_tensors(path)) is None:
            return None
        tensors, facts = stored
        for name, value in self.identity.items():
            if without_defaults(facts.get(name)) != without_defaults(value):
                raise ValueError(
                    f"{path} is of another run: its {name} is {facts.get(name)}, this run's is {value}. "
                    f"Choose another folder or remove the file."
                )
        check_shapes(tensors, expected, path)
        progress = Progress.parse(facts)
        if progress.finished != (path != self.checkpoint):
            raise _damaged(path, f"it claims to be at step {progress.step} of {progress.steps}")
        return tensors, progress

    def _tidy(self) -> None:
        """Remove what a finished run no longer needs; also after it was killed just before it could."""
        for leftover in (self.checkpoint, self.checkpoint.with_name(self.checkpoint.name + ".partial")):
            leftover.unlink(missing_ok=True)
