"""Write a file whole or not at all."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROBE = bytes(4096)
"""Written to see whether a folder takes files."""


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a new file beside `path`, flush it to disk, then rename: a crash leaves the old file or the new. A file that is
    replaced keeps its mode."""
    target = _target(path)
    with _temporary(path, target.parent, content) as temporary:
        if target.exists():
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, links followed. One at which no file can be written is refused, before any work is done:
    a small file is written beside it, and removed."""
    target = _target(path)
    with _temporary(path, target.parent, PROBE):
        return target


def _target(path: str | os.PathLike[str]) -> Path:
    """Only a file may be replaced: a rename over a device or a pipe would put a file in its place."""
    given, target = Path(path), Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {path}: there is no folder {target.parent}.")
    if given.is_dir():
        raise IsADirectoryError(f"Cannot save to {path}: it is a folder. Name a file in it.")
    if given.exists() and not given.is_file():
        raise FileExistsError(
            f"Cannot save to {path}: it is a pipe or a device, which a file would replace. Name a file, or a path where "
            "nothing is yet."
        )
    return target


@contextmanager
def _temporary(path: str | os.PathLike[str], folder: Path, content: bytes) -> Iterator[Path]:
    """A new file in the folder, gone at the end unless it was renamed. Errors name `path`, to which it is to be renamed."""
    temporary = folder / f".lates-{secrets.token_hex(8)}"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    except OSError as fault:
        reason = fault.strerror or fault
        hint = "Nothing there has changed. Make room or gain access there, or save elsewhere."
        raise OSError(fault.errno, f"Cannot save to {path}: {reason}. {hint}") from fault
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
