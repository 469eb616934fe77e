"""The peers, and a virtual environment for each, made on demand below .bench/ with pinned versions."""

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
TORCH = ("torch==2.13.0", "numpy==2.4.6")
SCIENTIFIC = ("numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1")


@dataclass(frozen=True)
class Peer:
    """A package to compare with: its name, its adapter, its version and what else its environment needs.

    `alone` are installed without their dependencies: torch-uncertainty's include torchvision, which nothing timed here uses.
    """

    name: str
    adapter: str
    requirements: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return (self.alone or self.requirements)[0].partition("==")[2]


PEERS = (
    Peer("netcal", "netcal", ("netcal==1.4.0", *TORCH, *SCIENTIFIC)),
    Peer("probmetrics", "probmetrics", ("probmetrics==1.3.0", "numba", "torch==2.13.0")),
    Peer("scikit-learn", "scikit_learn", ("scikit-learn==1.9.1", *SCIENTIFIC)),
    Peer(
        "torch-uncertainty",
        "torch_uncertainty",
        (*TORCH, *SCIENTIFIC, "torchmetrics==1.9.0", "einops", "lightning==2.6.6", "rich==15.0.0", "seaborn"),
        alone=("torch-uncertainty==0.13.0",),
    ),
    Peer("torchmetrics", "torchmetrics", ("torchmetrics==1.9.0", *TORCH)),
    Peer("relplot", "relplot", ("relplot==1.0.3", *SCIENTIFIC)),
    Peer("MAPIE", "mapie", ("mapie==1.6.0", *SCIENTIFIC)),
    Peer("plain LBFGS", "lbfgs", TORCH),
)


def python_of(peer: Peer, home: Path = HOME) -> Path:
    """The interpreter of the peer's environment, made first where it is not there yet or asks for other versions.

    Raises RuntimeError, with the installer's last words, where the environment cannot be made.
    """
    folder = home / peer.adapter
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join([*peer.requirements, *peer.alone])
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


def own_python() -> Path:
    """The interpreter that runs this: `lates` is measured where it is installed."""
    return Path(sys.executable)


def _install(python: Path, arguments: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
        raise RuntimeError("cannot be installed: " + " ".join(words).removeprefix("ERROR: "))
