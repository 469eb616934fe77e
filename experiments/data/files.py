"""Files that several processes share: written whole or not at all, locked by the kernel."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockError(Exception):
    """The folder's file system cannot lock."""


def write_whole(path: Path, content: bytes) -> None:
    """`path` holds its old content or all of the new, whatever happens: written beside it, flushed, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is inside `locked` of the same `path`; check again then what another may have done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        lock(descriptor, path.parent, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which unlocks


def lock(descriptor: int, folder: Path, kind: int) -> bool:
    """flock; False where `kind` does not wait and another process has the lock."""
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LockError(
            f"The file system of {folder} cannot lock files ({error.strerror}), so several runners could do the same "
            "thing at once. Choose a folder on a file system that can."
        ) from error
    return True
