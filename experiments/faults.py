"""What a user can mend, told in a sentence instead of a traceback; LATES_DEBUG=1 shows the traceback."""

import os

import torch

from experiments.archives import DataError
from experiments.claims import ClaimError
from experiments.results import OtherRecipeError

FAULTS = (
    DataError,
    ClaimError,
    OtherRecipeError,
    OSError,
    ValueError,
    FloatingPointError,
    MemoryError,
    torch.OutOfMemoryError,
)
"""Of data, folders, numbers and memory. Anything else is a mistake of this code, and its traceback is wanted."""


def explain(fault: Exception) -> str:
    """The reason and the way out."""
    if isinstance(fault, torch.OutOfMemoryError):
        needed = ". ".join(str(fault).splitlines()[0].split(". ")[:2]) if str(fault) else "it says no more"
        return f"The GPU's memory is full: {needed.rstrip('.')}. End what else runs there, or take --device cpu."
    if isinstance(fault, MemoryError):
        return f"The memory is full{f': {fault}' if str(fault) else ''}. End what else runs here."
    if isinstance(fault, OSError) and fault.filename is not None and fault.strerror:
        return f"{fault.filename}: {fault.strerror}."
    return str(fault) or type(fault).__name__


def tracebacks_wanted() -> bool:
    return bool(os.environ.get("LATES_DEBUG"))
