"""What a command prints, and how it ends: done, failed with one message, stopped by Ctrl-C."""

import json
import traceback
import warnings
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

COLUMNS = 80
FAILED, STOPPED = 1, 130


def say(text: str, err: bool = False) -> None:
    """Print text that may hold names from files and networks: control sequences in them do not reach the terminal."""
    from lates.runtime import printable

    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)


def print_written(path: Path) -> None:
    say(f"Wrote {path}, {path.stat().st_size:,} bytes.", err=True)


def print_json(results: Any) -> None:
    """Numbers that JSON cannot write (inf, NaN) become null."""
    finite = json.loads(json.dumps(results), parse_constant=lambda name: None)
    say(json.dumps(finite, indent=2))


def print_results(results: Any, text: str, as_json: bool) -> None:
    if as_json:
        print_json(results)
    elif text:
        say(text)


class Command(TyperCommand):
    """A command whose errors become one message and exit code 1, unless `lates --debug` asks for the traceback."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Flags take no value, so the help shows no <bool> beside them."""
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = " "
        return params

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *where: say(f"Warning: {message}", err=True)
                return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(STOPPED) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.find_root().params["debug"]:
                raise
            say(f"Error: {describe_error(error)}", err=True)
            raise typer.Exit(FAILED) from None


def describe_error(error: Exception) -> str:
    """The message alone where `lates` or the system raised it; anything else is named with its type."""
    if isinstance(error, OSError):
        without_file = error.strerror if error.filename is None else None
        return without_file or str(error) or type(error).__name__
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    is_ours = frame.f_globals.get("__name__", "").partition(".")[0] == "lates"
    if is_ours and isinstance(error, ValueError | TypeError | ImportError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}\n`lates --debug …` shows where it was raised."
