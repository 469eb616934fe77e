"""The peers, and a virtual environment for each, made on demand below .bench/ with pinned versions.

`python -m benchmarks.environments` makes all of them.
"""

import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


@dataclass(frozen=True)
class Peer:
    """A package to compare with: its name, its adapter, and what its environment needs, in the versions of constraints.txt.

    `alone` are installed without their dependencies: torch-uncertainty's include torchvision, which nothing timed here uses.
    """

    name: str
    adapter: str
    requirements: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        package = (self.alone or self.requirements)[0]
        lines = CONSTRAINTS.read_text("utf-8").splitlines()
        return next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))


PEERS = (
    Peer("netcal", "netcal", ("netcal",)),
    Peer("probmetrics", "probmetrics", ("probmetrics", "numba")),
    Peer("scikit-learn", "scikit_learn", ("scikit-learn",)),
    Peer(
        "torch-uncertainty",
        "torch_uncertainty",
        ("torch", "torchmetrics", "einops", "lightning", "rich", "scikit-learn", "seaborn"),
        alone=("torch-uncertainty",),
    ),
    Peer("torchmetrics", "torchmetrics", ("torchmetrics",)),
    Peer("relplot", "relplot", ("relplot",)),
    Peer("MAPIE", "mapie", ("mapie",)),
    Peer("plain LBFGS", "lbfgs", ("torch", "numpy")),
)


def python_of(peer: Peer, home: Path = HOME) -> Path:
    """The interpreter of the peer's environment, made first where it is not there yet or asks for other versions.

    Raises RuntimeError, with the installer's last words, where the environment cannot be made.
    """
    folder = home / peer.adapter
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join([*peer.requirements, *peer.alone, CONSTRAINTS.read_text("utf-8")])
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return python
    home.mkdir(exist_ok=True)
    (home / ".gitignore").write_text("*\n", "utf-8")
    venv.create(folder, with_pip=True, clear=True)
    _install(python, peer.requirements)
    if peer.alone:
        _install(python, ("--no-deps", *peer.alone))
    stamp.write_text(wanted, "utf-8")
    return python


def _install(python: Path, arguments: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--constraint", str(CONSTRAINTS), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
        raise RuntimeError("cannot be installed: " + " ".join(words).removeprefix("ERROR: "))


def main() -> None:
    for peer in PEERS:
        try:
            python_of(peer)
        except RuntimeError as fault:
            print(f"{peer.name}: {fault}")


if __name__ == "__main__":
    main()
