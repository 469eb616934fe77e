"""What a user can repair, reported in a sentence instead of a traceback; LATES_DEBUG=1 shows the traceback."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

FAULTS = (OSError, ValueError, FloatingPointError, MemoryError, torch.OutOfMemoryError)
"""Of data, folders, numbers and memory. Anything else is a mistake of this code, and its traceback is wanted."""
OF_ONE_CELL = (*FAULTS, RuntimeError)
"""What ends one cell and not the others: besides, what compilers, drivers and worker processes raise."""


def explain(fault: Exception) -> str:
    """The reason and the way out."""
    if isinstance(fault, torch.OutOfMemoryError):
        needed = ". ".join(str(fault).splitlines()[0].split(". ")[:2]) if str(fault) else "no details were given"
        return f"The GPU's memory is full: {needed.rstrip('.')}. End what else runs there, or use --device cpu."
    if isinstance(fault, MemoryError):
        return f"The memory is full{f': {fault}' if str(fault) else ''}. End what else runs here."
    if isinstance(fault, OSError) and fault.filename is not None and fault.strerror:
        return f"{fault.filename}: {fault.strerror}."
    if isinstance(fault, FAULTS):
        return str(fault) or type(fault).__name__
    first = str(fault).strip().split("\n")[0]
    return f"{type(fault).__name__}: {first.rstrip('.')}. LATES_DEBUG=1 shows where."


def tracebacks_wanted() -> bool:
    return bool(os.environ.get("LATES_DEBUG"))


@contextmanager
def faults_in_words() -> Iterator[None]:
    """For commands: a fault becomes one message and exit code 1, Ctrl-C exit code 130."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda message, *where: print(f"Warning: {message}", file=sys.stderr)
            yield
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from the last checkpoint.", file=sys.stderr)
        raise SystemExit(130) from None
    except FAULTS as fault:
        if tracebacks_wanted():
            raise
        print(f"Error: {explain(fault)}", file=sys.stderr)
        raise SystemExit(1) from None
