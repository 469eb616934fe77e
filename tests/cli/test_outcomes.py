"""How a command ends, whatever breaks in it: in words, silently, or with the code that was asked for."""

import errno
import io
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import typer
from typer.testing import Result

from lates.cli.outcomes import ToldInWords, tell
from lates.cli.outputs import check_output
from tests.cli.commands import RUNNER


def run_command(body: Callable[[], object]) -> Result:
    """Run a command of this body, below a root that has `--debug`."""
    app = typer.Typer()

    @app.callback()
    def root(debug: bool = False) -> None: ...

    @app.command("break", cls=ToldInWords)
    def command() -> None:
        body()

    return RUNNER.invoke(app, ["break"])


def raising(fault: BaseException) -> Callable[[], object]:
    def body() -> None:
        raise fault

    return body


DEBUG = "`lates --debug …` shows where it arose."


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "Error: No space left on device\n"),
        (OSError(errno.EACCES, "Permission denied", "a.txt"), "Error: [Errno 13] Permission denied: 'a.txt'\n"),
        (TimeoutError(), "Error: TimeoutError\n"),
        (ValueError("no such thing"), f"Error: ValueError: no such thing\n{DEBUG}\n"),
        (KeyError("name"), f"Error: KeyError: 'name'\n{DEBUG}\n"),
    ],
)
def test_of_what_is_not_ours_the_kind_is_told_too(fault: Exception, told: str) -> None:
    result = run_command(raising(fault))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)


def test_what_we_say_ourselves_is_told_as_it_is(tmp_path: Path) -> None:
    result = run_command(lambda: check_output(tmp_path / "none" / "file", force=False))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: Cannot save to {tmp_path / 'none' / 'file'}: there is no folder")
    assert "--debug" not in result.stderr


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1),
        (SystemExit(3), 3),
        (typer.Exit(4), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_closed_pipe_and_an_exit_are_no_errors(fault: BaseException, code: int) -> None:
    result = run_command(raising(fault))
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == ("Stopped.\n" if code == 130 else "")


@pytest.mark.skipif(sys.platform == "win32", reason="processes are started as ever there")
def test_while_it_runs_it_hears_ctrl_c_in_its_own_way_and_afterwards_as_before() -> None:
    def hearing() -> tuple[object, ...]:
        return signal.getsignal(signal.SIGINT), sys.unraisablehook, BaseProcess.start

    inside: list[tuple[object, ...]] = []
    for then in (lambda: None, raising(ValueError("broken"))):
        before = hearing()
        run_command(lambda then=then: (inside.append(hearing()), then()))
        assert hearing() == before
        assert all(own is not old for own, old in zip(inside[-1], before, strict=True))


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_what_breaks_after_ctrl_c_breaks_because_of_it() -> None:
    def body() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("a worker is gone")

    result = run_command(body)
    assert (result.exit_code, result.stderr) == (130, "Stopped.\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_indented_lines_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stderr", terminal)
    tell("Of so many words a line holds but a few.\n    of these it holds all, however many")
    assert terminal.getvalue().splitlines() == [
        "Of so many words a line holds",
        "but a few.",
        "    of these it holds all, however many",
    ]
