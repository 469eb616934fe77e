"""Who does what: one runner at a time, on however many machines share the folder.

A claim is an exclusive lock (flock) on a file beside the network, held by the kernel for as long as the runner lives. A
runner that is killed loses its claims that instant; no clock, no heartbeat and no stale file can mislead the others. The
file itself stays, for to remove it would let two runners lock two files of the same name.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CLAIM = "claim.lock"
SECOND_TRY = 0.05
"""Seconds after which a refused claim is tried once more: `read_claim` holds the lock for an instant too."""


class ClaimError(Exception):
    """The folder's file system cannot lock."""


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether this runner has the folder to itself, for as long as the `with` lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / CLAIM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        mine = _lock(descriptor, folder)
        if not mine:
            time.sleep(SECOND_TRY)
            mine = _lock(descriptor, folder)
        if mine:
            holder = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}).encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder, 0)
        yield mine
    finally:
        os.close(descriptor)  # which unlocks


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Wait until nobody else is inside an `alone_at` of the same `path`, on this machine or on another.

    Whoever waited finds the world changed, and looks again before it does what another may have done meanwhile.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(descriptor, path.parent, wait=True)
        yield
    finally:
        os.close(descriptor)  # which unlocks


def read_claim(folder: Path) -> dict[str, Any] | None:
    """The host, pid and start of the runner that has claimed `folder`, or None where nobody has."""
    try:
        descriptor = os.open(folder / CLAIM, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _lock(descriptor, folder, fcntl.LOCK_SH):
            return None
        content = os.pread(descriptor, 4096, 0)
        return json.loads(content) if content else {}
    except ValueError:
        return {}  # claimed this instant: its holder is about to write
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, kind: int = fcntl.LOCK_EX, *, wait: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ClaimError(
            f"The file system of {folder} cannot lock files ({error.strerror}), so several runners could do the same "
            "thing at once. Choose a folder on a file system that can."
        ) from error
    return True
