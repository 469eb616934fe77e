"""`lates inspect`: what is in a calibration file, without the network that it belongs to."""

from pathlib import Path
from typing import Annotated

import typer

from lates.cli.options import AsJson
from lates.cli.outputs import print_json


def inspect_file(
    file: Annotated[Path, typer.Argument(help="What `lates calibrate` or `lates fit` wrote.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what is in a calibration file: who votes, how it was fitted, which network it is for.

    Neither the network nor any code of yours is needed, and nothing is unpickled.

        lates inspect my.lates.safetensors
    """
    from lates.cli.contents import describe_contents, read_contents

    contents = read_contents(file)
    if as_json:
        print_json(contents)
    else:
        typer.echo(describe_contents(contents))
