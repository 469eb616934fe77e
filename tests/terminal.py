"""The command as a terminal runs it: a process group of its own, with colours."""

import os
import subprocess
import sys
from pathlib import Path

import lates


def start_command(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `lates ARGUMENTS` in that folder."""
    return subprocess.Popen(
        [sys.executable, "-B", "-c", "from lates.cli import app; app()", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(lates.__file__).parents[1]), "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[bytes], word: bytes) -> None:
    """Read standard error until the word appears; the process must not end before."""
    assert process.stderr is not None
    seen = b""
    while word not in seen:
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, seen.decode()
        seen += piece


def own_lines(printed: str) -> list[str]:
    """The output of several processes without Gloo's greetings, which torch before 2.11 prints."""
    return [line for line in printed.splitlines() if not line.startswith("[Gloo]")]
