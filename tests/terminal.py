"""The command as a terminal runs it: a program of its own, with colours, to which Ctrl-C is sent while it works."""

import os
import subprocess
import sys
from pathlib import Path

import lates


def start_command(arguments: list[str], folder: Path, *, own_group: bool = False) -> subprocess.Popen[bytes]:
    """`lates ARGUMENTS` in that folder, by itself or in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-B", "-c", "from lates.cli import app; app()", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(lates.__file__).parents[1]), "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=own_group,
    )


def wait_until_told(process: subprocess.Popen[bytes], word: bytes) -> None:
    """Read what the command says until the word appears; it must not end before."""
    assert process.stderr is not None
    seen = b""
    while word not in seen:
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, seen.decode()
        seen += piece


def own_lines(printed: str) -> list[str]:
    """What several processes printed of their own: torch before 2.11 lets them greet one another."""
    return [line for line in printed.splitlines() if not line.startswith("[Gloo]")]
