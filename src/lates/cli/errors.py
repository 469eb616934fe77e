"""How a command ends: done, failed with one message, stopped by Ctrl-C."""

import traceback
import warnings
from typing import Any

import typer
from typer.core import TyperCommand

from lates.cli.outputs import say

FAILED, STOPPED = 1, 130


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
                warnings.showwarning = print_warning
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
    if isinstance(error, OSError) and error.strerror and error.filename is None:
        return error.strerror
    if isinstance(error, OSError) or (isinstance(error, ValueError | TypeError | ImportError) and _is_ours(error)):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}\n`lates --debug …` shows where it was raised."


def _is_ours(error: Exception) -> bool:
    """Whether a function of this package raised it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").partition(".")[0] == "lates"


def print_warning(message: Warning | str, *where: Any) -> None:
    say(f"Warning: {message}", err=True)
