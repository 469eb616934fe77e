"""One runner at a time per network, on however many machines share the folder.

A claim is an exclusive lock (flock) on a file beside the network, which the kernel releases when the runner ends, however it
ends. The file itself stays: if it were removed, two runners could lock two files of the same name.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.data.files import DamagedError, parse_json

CLAIM = "claim.lock"
SECOND_TRY = 0.05
"""Seconds after which a refused claim is tried once more: `read_claim` takes the lock for an instant too."""


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether this process has the folder to itself, for as long as the `with` lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / CLAIM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        exclusive = fcntl.LOCK_EX | fcntl.LOCK_NB
        if not (mine := _lock(descriptor, folder, exclusive)):
            time.sleep(SECOND_TRY)
            mine = _lock(descriptor, folder, exclusive)
        if mine:
            holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield mine
    finally:
        os.close(descriptor)  # which unlocks


def read_claim(folder: Path) -> str | None:
    """The process that has claimed `folder`, in words, or None where none has."""
    try:
        descriptor = os.open(folder / CLAIM, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _lock(descriptor, folder, fcntl.LOCK_SH | fcntl.LOCK_NB):
            return None
        holder = parse_json(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (DamagedError, KeyError):  # perhaps claimed this instant: its holder is about to write
        return f"another process ({folder / CLAIM} does not say which)"
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, kind: int) -> bool:
    """flock; False where another process has the lock."""
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        raise OSError(
            f"The file system of {folder} cannot lock files ({error.strerror}), so several runners could do the same "
            "thing at once. Choose a folder on a file system that can."
        ) from error
    return True
