"""Write a file whole or not at all."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
"""What a path may lead to that is neither a file nor a folder."""


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to disk, then rename: a crash leaves the old file or the new."""
    target = check_target(path)
    temporary = target.with_name(f".lates-{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as fault:
        raise OSError(
            fault.errno,
            f"Cannot save {len(content):,} bytes to {path}: {fault.strerror or fault}. Nothing there has changed. Make room "
            "or gain access there, or save elsewhere.",
        ) from fault
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, links followed; one at which no file can be written is refused, before any work is done.

    Only a file may be replaced: a rename over a device or a pipe would put a file in its place.
    """
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
