"""CIFAR's archives: downloaded once and verified, unpacked whole, read without running what they say."""

import hashlib
import http.client
import math
import os
import pickle
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claims import alone_at


class DataError(Exception):
    """The data, on disk or from the web, are not what they have to be."""


#
# A pickle is a program. CIFAR's need three verbs: rebuild an array, name its dtype, encode text as bytes. The stand-ins
# below serve exactly these, in plain Python; a file that names anything else is refused before it runs.


class _PickledDtype:
    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name

    def __setstate__(self, _: object) -> None:
        """Byte order and alignment say nothing about single bytes."""


class _PickledArray:
    def __init__(self, *_: object) -> None:
        self.array = np.empty((0, 0), np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _PickledDtype, bool, bytes]) -> None:
        _, shape, dtype, column_major, content = state
        if dtype.name != "u1" or column_major or math.prod(shape) != len(content):
            raise pickle.UnpicklingError(
                f"an array of {dtype.name}, shape {shape}, {len(content)} bytes is not CIFAR's"
            )
        self.array = np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def _pickled_bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _PickledDtype,
    ("_codecs", "encode"): _pickled_bytes,
}


class _CifarUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}, which no CIFAR file needs")
        return _ALLOWED[module_name, global_name]


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in one CIFAR file; nothing in the file can run code."""
    try:
        with open(path, "rb") as file:
            content = _CifarUnpickler(file, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}. Unpack the archive anew.") from error
    except Exception as error:
        raise DataError(f"{path} is damaged or not a CIFAR file: {error}. Unpack the archive anew.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}; a CIFAR file holds a dictionary.")
    return {key: value.array if isinstance(value, _PickledArray) else value for key, value in content.items()}


def fetch(url: str, sha256: str, destination: Path, *, attempts: int = 5) -> None:
    """Put the file at `url` at `destination`, which appears complete and verified or not at all.

    Bytes gather in `destination.part`. A broken connection, or a later call after a killed one, asks the server only
    for the bytes that are missing. A file already there is verified and kept. Of several callers one downloads, while
    the others wait for it.
    """
    with alone_at(destination):
        _fetch_alone(url, sha256, destination, attempts)


def _fetch_alone(url: str, sha256: str, destination: Path, attempts: int) -> None:
    if destination.exists():
        if (found := _checksum(destination)) != sha256:
            raise DataError(
                f"{destination} has the checksum {found}, expected {sha256}. Remove it and download it again."
            )
        return
    part = destination.with_name(destination.name + ".part")
    problem: Exception | None = None
    for _ in range(attempts):
        try:
            if _continue_download(url, part):
                break
        except (OSError, http.client.HTTPException) as error:
            problem = error
    else:
        got = part.stat().st_size if part.exists() else 0
        reason = problem or "the connection ended early"
        raise DataError(f"Download of {url} stopped after {got} bytes: {reason}. Run again to go on from there.")
    if (found := _checksum(part)) != sha256:
        part.unlink()
        raise DataError(f"{url} gave a file with the checksum {found}, expected {sha256}. Nothing was kept; try again.")
    os.replace(part, destination)


def _continue_download(url: str, part: Path) -> bool:
    """Append what `part` lacks; True when it is complete."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return True  # nothing is missing, or the file is another one: the checksum will tell
        raise
    with response, open(part, "ab" if response.status == http.HTTPStatus.PARTIAL_CONTENT else "wb") as file:
        remaining = int(response.headers.get("Content-Length", -1))
        while chunk := response.read(1 << 16):
            file.write(chunk)
            remaining -= len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return remaining <= 0


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, member_folder: str) -> None:
    """Unpack beside the archive, unless that is done; the folder appears whole or not at all."""
    unpacked = archive.parent / member_folder
    with alone_at(archive):
        if not unpacked.is_dir():
            _unpack_alone(archive, unpacked)


def _unpack_alone(archive: Path, unpacked: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="data")
            os.rename(Path(scratch) / unpacked.name, unpacked)
        except (tarfile.TarError, EOFError, FileNotFoundError) as error:
            raise DataError(
                f"{archive} does not hold {unpacked.name}: {error}. Remove it and download again."
            ) from error
