"""One runner at a time per network, on however many machines share the folder.

A claim is an exclusive lock (flock) on a file beside the network, which the kernel releases when the runner ends, however it
ends. The file itself stays: if it were removed, two runners could lock two files of the same name.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLAIM = "claim.lock"


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether this process has the folder to itself, for as long as the `with` lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / CLAIM, "a") as file:
        yield _lock(file.fileno(), folder, fcntl.LOCK_EX)


def is_claimed(folder: Path) -> bool:
    try:
        with open(folder / CLAIM) as file:
            return not _lock(file.fileno(), folder, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def share_of_cores(runs: Path) -> int:
    """Cores of this machine for each runner that works on a network below `runs`, at least one."""
    runners = sum(is_claimed(claim.parent) for claim in runs.glob(f"*/{CLAIM}"))
    return max(1, (os.cpu_count() or 1) // max(1, runners))


def _lock(descriptor: int, folder: Path, kind: int) -> bool:
    """flock; False where another process has the lock."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OSError(
            f"The file system of {folder} cannot lock files ({error.strerror}), so several runners could do the same "
            "thing at once. Choose a folder on a file system that can."
        ) from error
    return True
