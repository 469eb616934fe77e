"""The command `lates`. What needs torch is imported inside the commands, so that `lates --help` does not wait for it.

options       which several commands share
console       what a command prints, and how it ends
user_code     your network and loaders, by `module:function`
checkpoint    weights from a file
calibrate     `lates calibrate`
saved_logits  logits and labels from a file
contents      calibration files as data and as text
fit           `lates fit`
inspect       `lates inspect`
table         methods compared, as text
evaluate      `lates evaluate`
report        `lates report`
export        `lates export`
demo          `lates demo`

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C. Results go to standard output, everything else to
standard error.
"""

from typing import Annotated

import typer

from lates import __version__
from lates.cli.console import Command
from lates.cli.calibrate import calibrate_model
from lates.cli.demo import show_demo
from lates.cli.evaluate import evaluate_file
from lates.cli.export import export_calibration
from lates.cli.fit import fit_cached
from lates.cli.inspect import inspect_file
from lates.cli.report import report_calibration

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lates {__version__}")
        raise typer.Exit


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", envvar="LATES_DEBUG", help="Show the traceback of an error.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Calibrate a PyTorch classifier with all of its layers.

    Start with `lates demo`. For your own model: `lates calibrate`, then `lates evaluate` and `lates report`; to deploy
    it, `lates export`. For saved logits, without a model: `lates fit` and `lates evaluate`.

    In Python: `lates.calibrate(model, train=train_loader, holdout=holdout_loader)`
    """


COMMANDS = {
    "demo": show_demo,
    "calibrate": calibrate_model,
    "evaluate": evaluate_file,
    "report": report_calibration,
    "export": export_calibration,
    "inspect": inspect_file,
    "fit": fit_cached,
}
for name, command in COMMANDS.items():
    app.command(name, cls=Command)(command)
