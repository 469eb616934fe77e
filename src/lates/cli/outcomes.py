"""How a command ends: done, failed in words, stopped."""

import gc
import re
import shutil
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from _thread import interrupt_main
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_sharer
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, TextIO, cast

import typer
from typer.core import TyperCommand

MEANT = (ValueError, TypeError, ImportError)
FAILED, STOPPED = 1, 130
WRONGLY_CALLED = (typer.Exit, typer.Abort, typer.BadParameter)
COMMAND = re.compile(r'`[^`]+`|pip install "[^"]+"')
"""What is there to be copied, and so must stay in one piece."""
DELAY, MOST_DELAYS = 0.05, 20
"""Seconds after which an interrupt that came at a bad time comes again, and how often."""


class ToldInWords(TyperCommand):
    """A command whose errors become one message and exit code 1, unless `lates --debug` asked for the traceback."""

    def get_params(self, ctx: Any) -> list[Any]:
        """A flag takes no value, so the help shows none, where typer would put <bool>."""
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = " "
        return params

    def invoke(self, ctx: Any) -> Any:
        with noticing_stop() as stop:
            try:
                with warnings.catch_warnings():
                    warnings.showwarning = tell_warning
                    return super().invoke(ctx)
            except BaseException as fault:
                if stop.asked or isinstance(fault, KeyboardInterrupt):
                    traceback.clear_frames(fault.__traceback__)
                    gc.collect()  # loaders end their workers here, where their complaints are not shown
                    typer.echo("Stopped.", err=True)
                    raise typer.Exit(STOPPED) from None
                if isinstance(fault, (*WRONGLY_CALLED, BrokenPipeError)) or not isinstance(fault, Exception):
                    raise
                if ctx.find_root().params["debug"]:
                    raise
                tell_error(fault)
                raise typer.Exit(FAILED) from None


@dataclass
class Stop:
    asked: bool = False


class MainThreadOnly:
    """A stream that drops what other threads write: complaints of queues whose other end is gone."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(text) if threading.current_thread() is threading.main_thread() else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def noticing_stop() -> Iterator[Stop]:
    """Remember that Ctrl-C was pressed: what breaks after it breaks because of it, in whatever words.

    A terminal signals loaders' workers too; they leave it to this process, which ends them. It does not hang up on one that
    hands over a tensor, which would complain, nor do its own threads that wrote to them speak. An interrupt that comes then,
    or falls into a destructor, where Python loses it, is sent once more.
    """
    stop, patience, tell_unraisable = Stop(), iter(range(MOST_DELAYS)), sys.unraisablehook
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield stop
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        if receives_a_tensor(frame) and next(patience, None) is not None:
            interrupt_soon()
            return
        sys.stderr = cast("TextIO", MainThreadOnly(sys.stderr))
        raise KeyboardInterrupt

    def hush_while_stopping(lost: "sys.UnraisableHookArgs") -> None:
        if not stop.asked:
            tell_unraisable(lost)
        elif isinstance(lost.exc_value, KeyboardInterrupt):
            interrupt_soon()

    signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = hush_while_stopping
    try:
        with workers_deaf():
            yield stop
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = tell_unraisable


def receives_a_tensor(frame: FrameType | None) -> bool:
    return any(
        caller.f_globals.get("__name__") == resource_sharer.__name__ for caller, _ in traceback.walk_stack(frame)
    )


def interrupt_soon() -> None:
    """By a real signal where there are such: what waits for another process would not notice else."""
    if sys.platform == "win32":
        again = threading.Timer(DELAY, interrupt_main)
    else:
        again = threading.Timer(DELAY, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    again.daemon = True
    again.start()


@contextmanager
def workers_deaf() -> Iterator[None]:
    """Processes that are started meanwhile do not hear Ctrl-C, however they are started: a blocked signal is inherited."""
    if sys.platform == "win32":  # has no such thing
        yield
        return
    start = BaseProcess.start

    def start_deaf(self: BaseProcess) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            start(self)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    BaseProcess.start = start_deaf
    try:
        yield
    finally:
        BaseProcess.start = start


def tell_error(fault: Exception) -> None:
    """What `lates` itself says is meant to be read; of anything else, a bug or the user's own code, the kind is told too."""
    if isinstance(fault, OSError) and fault.strerror and fault.filename is None:
        tell(f"Error: {fault.strerror}")
    elif isinstance(fault, OSError) or (isinstance(fault, MEANT) and raised_by_us(fault)):
        tell(f"Error: {str(fault) or type(fault).__name__}")
    else:
        tell(f"Error: {type(fault).__name__}: {fault}\n`lates --debug …` shows where it arose.")


def raised_by_us(fault: Exception) -> bool:
    """Whether the innermost frame is one of this package."""
    *_, (frame, _) = traceback.walk_tb(fault.__traceback__)
    return frame.f_globals.get("__name__", "").partition(".")[0] == "lates"


def tell_warning(message: Warning | str, *where: Any) -> None:
    tell(f"Warning: {message}")


def tell(text: str) -> None:
    """On standard error. A terminal gets it broken between words, but no command; a file as it is, for whoever searches it."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(
            line if line.startswith(" ") else broken_between_words(line, width) for line in text.split("\n")
        )
    typer.echo(text, err=True)


def broken_between_words(line: str, width: int) -> str:
    whole = COMMAND.sub(lambda command: command[0].replace(" ", "\0"), line)
    return textwrap.fill(whole, width, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
