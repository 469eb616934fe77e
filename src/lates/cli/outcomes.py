"""How a command ends: done, failed in words, stopped."""

import warnings
from typing import Any

import typer
from typer.core import TyperCommand

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
    """What `lates` says by OSError and ValueError is meant to be read; of anything else the kind is told as well."""
    if isinstance(fault, OSError | ValueError):
        typer.echo(f"Error: {fault or type(fault).__name__}", err=True)
    else:
        typer.echo(f"Error: {type(fault).__name__}: {fault}", err=True)
        typer.echo("`lates --debug …` shows where it arose.", err=True)


def tell_warning(message: Warning | str, *where: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)
