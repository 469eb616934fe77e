"""`lates inspect`: what is in a calibration file, without the network that it belongs to."""

from pathlib import Path
from typing import Annotated

import typer

from lates.cli.console import print_results
from lates.cli.options import AsJson


def inspect_file(
    file: Annotated[Path, typer.Argument(help="A file written by `lates calibrate` or `lates fit`.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what is in a calibration file: members and weights, the fit, the network it belongs to.

    It needs neither the network nor any of your code, and unpickles nothing.

        lates inspect my.lates.safetensors
    """
    from lates.cli.contents import describe_contents, read_contents

    stack, contents = read_contents(file)
    print_results(contents, describe_contents(stack, contents), as_json)
