"""Write a file whole or not at all."""

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
"""What a path may lead to that is neither a file nor a folder."""
ADVICE = "Make room or gain access there, or save elsewhere."


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a new file beside `path`, flush it to disk, then rename: a crash leaves the old file or the new. A file that is
    replaced keeps its mode. Where this fails, the content goes to the folder for temporary files, and the error says so."""
    target = _target(path)
    try:
        with _temporary(target.parent, content) as temporary:
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            os.replace(temporary, target)
    except OSError as fault:
        raise OSError(
            fault.errno,
            f"Cannot save {len(content):,} bytes to {path}: {fault.strerror or fault}. Nothing there has changed. "
            f"{_rescue(content, target.suffix)}",
        ) from fault


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, links followed. One at which no file can be written is refused, before any work is done:
    a small file is written beside it, and removed."""
    target = _target(path)
    try:
        with _temporary(target.parent, bytes(4096)):
            return target
    except OSError as fault:
        raise OSError(fault.errno, f"Cannot save to {path}: {fault.strerror or fault}. {ADVICE}") from fault


def _target(path: str | os.PathLike[str]) -> Path:
    """Only a file may be replaced: a rename over a device or a pipe would put a file in its place."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {path}: there is no folder {target.parent}.")
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        return target
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(f"Cannot save to {path}: it is a folder. Name a file in it.")
    if kind != stat.S_IFREG:
        raise FileExistsError(
            f"Cannot save to {path}: it is {KINDS.get(kind, 'no file')}, which a file would replace. Name a file, or a path "
            "where nothing is yet."
        )
    return target


@contextmanager
def _temporary(folder: Path, content: bytes) -> Iterator[Path]:
    """A new file in the folder, gone at the end unless it was renamed."""
    path = folder / f".lates-{secrets.token_hex(8)}"
    try:
        try:  # where the system can, without a name until it is whole: a killed write leaves nothing
            with open(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb") as file:
                _write_through(file, content)
                # of the two calls that link, only the one that takes a folder's descriptor follows /proc's link to the file
                os.link(f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=file.fileno())
        except (AttributeError, OSError):  # no Linux, or a file system without nameless files
            with open(path, "xb") as file:
                _write_through(file, content)
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _write_through(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _rescue(content: bytes, suffix: str) -> str:
    """What became of content that could not be written where it belongs."""
    name = None
    try:
        descriptor, name = tempfile.mkstemp(suffix, "lates-")
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
        return ADVICE
    return f"What was to be saved is in {name}: move it from there."
