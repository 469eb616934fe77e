"""`python -m lates`: the command `lates`, in the environment of this Python."""

from lates.cli import app

app(prog_name="lates")
