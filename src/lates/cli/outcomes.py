"""How a command ends: done, failed in words, stopped."""

import traceback
import warnings
from typing import Any

import typer
from typer.core import TyperCommand

MEANT = (ValueError, TypeError, ImportError)
FAILED, STOPPED = 1, 130
WRONGLY_CALLED = (typer.Exit, typer.Abort, typer.BadParameter)


class ToldInWords(TyperCommand):
    """A command whose errors become one message and exit code 1, unless `lates --debug` asked for the traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = tell_warning
                return super().invoke(ctx)
        except (*WRONGLY_CALLED, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(STOPPED) from None
        except Exception as fault:
            if ctx.find_root().params["debug"]:
                raise
            tell_error(fault)
            raise typer.Exit(FAILED) from None


def tell_error(fault: Exception) -> None:
    """What `lates` itself says is meant to be read; of anything else, a bug or the user's own code, the kind is told too."""
    if isinstance(fault, OSError) or (isinstance(fault, MEANT) and raised_by_us(fault)):
        typer.echo(f"Error: {fault or type(fault).__name__}", err=True)
    else:
        typer.echo(f"Error: {type(fault).__name__}: {fault}", err=True)
        typer.echo("`lates --debug …` shows where it arose.", err=True)


def raised_by_us(fault: Exception) -> bool:
    """Whether the innermost frame is one of this package."""
    *_, (frame, _) = traceback.walk_tb(fault.__traceback__)
    return frame.f_globals.get("__name__", "").partition(".")[0] == "lates"


def tell_warning(message: Warning | str, *where: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)
