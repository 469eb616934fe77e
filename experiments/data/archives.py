"""CIFAR's archives: downloaded once and verified, unpacked whole, read without running code from them."""

import hashlib
import http.client
import os
import pickle
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray


class DataError(ValueError):
    """The data, on disk or from the web, are not what is expected."""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),
}


class _CifarUnpickler(pickle.Unpickler):
    """A pickle is a program; this one can call nothing but what rebuilds an array of bytes."""

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
        raise DataError(f"Cannot read {path}: {error.strerror}. Unpack the archive again.") from error
    except Exception as error:
        raise DataError(f"{path} is damaged or not a CIFAR file: {error}. Unpack the archive again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}; a CIFAR file holds a dictionary.")
    return content


def fetch(url: str, sha256: str, destination: Path) -> None:
    """Put the file at `url` at `destination`, which appears complete and verified or not at all.

    A file already there is verified and kept.
    """
    if destination.exists():
        if (actual := _sha256_of(destination)) != sha256:
            raise DataError(f"{destination} has the checksum {actual}, expected {sha256}. Remove it and download it again.")
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        part = Path(scratch) / destination.name
        try:
            with urllib.request.urlopen(url, timeout=60) as response, open(part, "wb") as file:
                shutil.copyfileobj(response, file)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(
                f"Download of {url} failed: {error}. Run again, or put the file at {destination} yourself."
            ) from error
        if (actual := _sha256_of(part)) != sha256:
            raise DataError(f"{url} gave a file with the checksum {actual}, expected {sha256}. Nothing was kept; try again.")
        os.replace(part, destination)


def _sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, member_folder: str) -> None:
    """Unpack beside the archive; the folder appears whole or not at all."""
    unpacked = archive.parent / member_folder
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="data")
            os.rename(Path(scratch) / member_folder, unpacked)
        except (tarfile.TarError, EOFError, FileNotFoundError) as error:
            raise DataError(f"{archive} does not hold {member_folder}: {error}. Remove it and download again.") from error
        except OSError:
            if not unpacked.is_dir():  # else another runner was quicker
                raise
