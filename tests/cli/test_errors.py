"""How a command ends: its exit code, and what it prints on standard error."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from typer.testing import Result

from lates.cli.console import Command
from tests.cli.commands import CALIBRATION, RUNNER, calibrate, run
from tests.cli_problem import Folder
from tests.terminal import start_command, wait_for

DEBUG = "`lates --debug …` shows where it was raised."


def run_command(body: Callable[[], object]) -> Result:
    app = typer.Typer()

    @app.callback()
    def root(debug: bool = False) -> None: ...

    @app.command("break", cls=Command)
    def command() -> None:
        body()

    return RUNNER.invoke(app, ["break"])


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "Error: No space left on device\n"),
        (OSError(errno.EACCES, "Permission denied", "a.txt"), 1, "Error: [Errno 13] Permission denied: 'a.txt'\n"),
        (TimeoutError(), 1, "Error: TimeoutError\n"),
        (ValueError("no such thing"), 1, f"Error: ValueError: no such thing\n{DEBUG}\n"),
        (KeyError("name"), 1, f"Error: KeyError: 'name'\n{DEBUG}\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, ""),
        (SystemExit(3), 3, ""),
        (typer.Exit(4), 4, ""),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
    ],
)
def test_command_ends_with_code_and_message(error: BaseException, code: int, printed: str) -> None:
    def body() -> None:
        raise error

    result = run_command(body)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", printed)


@pytest.mark.parametrize(("arguments", "variable"), [(["--debug"], ""), ([], "1")])
def test_debug_shows_the_traceback(tmp_path: Path, arguments: list[str], variable: str) -> None:
    (tmp_path / "damaged.safetensors").write_bytes(b"nothing")
    result = run(*arguments, "inspect", tmp_path / "damaged.safetensors", LATES_DEBUG=variable)
    assert isinstance(result.exception, ValueError)
    assert "is not a whole safetensors file" in str(result.exception)


def test_ctrl_c_while_writing_leaves_the_old_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate(folder)
    before = Path(CALIBRATION).read_bytes()

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    result = calibrate(folder, "--force", "--seed", "1")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Stopped.\n")
    assert Path(CALIBRATION).read_bytes() == before
    assert list(Path().iterdir()) == [Path(CALIBRATION)]


@pytest.mark.skipif(sys.platform == "win32", reason="has no process groups")
def test_ctrl_c_with_loader_workers_stops_and_writes_nothing(made: Folder, tmp_path: Path) -> None:
    """The training loader is endless; like a terminal, the test signals the whole process group."""
    (tmp_path / "their_module.py").write_bytes((made.path / "their_module.py").read_bytes())
    options = ["--model", "their_module:make_model", "--data", "their_module:make_endless", "-o", CALIBRATION]
    process = start_command(["calibrate", *options], tmp_path)
    try:
        wait_for(process, b"train")
        os.killpg(process.pid, signal.SIGINT)
        out, printed = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out) == (130, b""), printed.decode()
    assert b"Stopped.\n" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["their_module.py"]
