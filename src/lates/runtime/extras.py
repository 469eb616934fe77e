"""How to install what is optional: one sentence, from a clone or not."""


def install_line(extra: str) -> str:
    """For the end of an error about a package that is missing."""
    return f'Run: pip install ".[{extra}]" in a clone of lates, or pip install "lates[{extra}]"'
