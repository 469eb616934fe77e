"""CIFAR's archives are downloaded whole, once, and read without running code from them."""

import hashlib
import os
import pickle
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch

from experiments.data.archives import DataError, fetch, read_pickle
from experiments.data.datasets import CIFAR, SAMPLE, CifarLayout, load_cifar, load_sample
from tests.experiments.data.cifar_files import write_cifar10

# Pickles


def test_cifar_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    for read, sample in zip(load_cifar(CIFAR["cifar10"], tmp_path), load_sample(SAMPLE), strict=True):
        assert torch.equal(read.images, sample.images)
        assert torch.equal(read.labels, sample.labels)
        assert read.classes == sample.classes


def python2_pickle(rows: bytes, count: int) -> bytes:
    """What Python 2 wrote into the official archives, instruction by instruction: an array and a list of labels."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"  # _reconstruct(ndarray, (0,), "b")
        + b"(K\x01K" + bytes([count]) + b"M\x00\x0c\x86"  # state: version 1, shape (count, 3072)
        + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"  # dtype("u1")
        + b"\x89T" + len(rows).to_bytes(4, "little") + rows + b"tb"  # not column-major; the bytes; set the state
    )  # fmt: skip
    labels = b"](" + b"".join(b"K" + bytes([i]) for i in range(count)) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + labels + b"u."


def test_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)
    (tmp_path / "old").write_bytes(python2_pickle(rows.tobytes(), 3))
    content = read_pickle(tmp_path / "old")
    assert np.array_equal(content[b"data"], rows)
    assert content[b"labels"] == [0, 1, 2]


class Payload:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "in an array of objects"])
@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (os.system, ("touch {trap}",), r"(posix|nt)\.system"),
        (eval, ("open('{trap}', 'w')",), r"builtin(s|__)\.eval"),
        (getattr, ("", "join"), r"builtin(s|__)\.getattr"),
    ],
)
def test_a_malicious_pickle_is_refused_and_never_runs(
    tmp_path: Path, function: Callable[..., object], arguments: tuple[str, ...], named: str, nested: bool
) -> None:
    trap = tmp_path / "trap"
    payload = Payload(function, *(argument.replace("{trap}", str(trap)) for argument in arguments))
    content = np.array([payload], dtype=object) if nested else payload
    (tmp_path / "bad").write_bytes(pickle.dumps({b"data": content}, protocol=2))
    with pytest.raises(DataError, match=rf"bad is damaged or not a CIFAR file: .*{named}"):
        read_pickle(tmp_path / "bad")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "data_batch_3 is damaged"),
        (lambda path: path.unlink(), "Cannot read .*data_batch_3: No such file"),
        (lambda path: path.write_bytes(pickle.dumps([1], protocol=2)), "data_batch_3 holds a list"),
        (lambda path: path.write_bytes(pickle.dumps({b"data": 3}, protocol=2)), "data_batch_3 has no ndarray b'data'"),
        (
            lambda path: path.write_bytes(pickle.dumps({b"data": np.zeros((2, 5))}, protocol=2)),
            r"float64 images of shape \[2, 5\]; expected uint8 \[n, 3072\]",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(write_cifar10(tmp_path) / "data_batch_3")
    with pytest.raises(DataError, match=message):
        load_cifar(CIFAR["cifar10"], tmp_path)


def test_a_folder_without_cifar_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No cifar-100-python in .*cifar-100-python\.tar\.gz, or leave --data out"):
        load_cifar(CIFAR["cifar100"], tmp_path)


# Downloads, from addresses of files


@pytest.fixture
def published(tmp_path: Path) -> CifarLayout:
    """CIFAR-10's archive, as it lies on a server."""
    archive = tmp_path / "server" / "cifar-10-python.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, mode="w:gz", compresslevel=1) as tar:
        tar.add(write_cifar10(tmp_path / "origin"), "cifar-10-batches-py")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return replace(CIFAR["cifar10"], url=archive.as_uri(), sha256=digest)


def test_runners_may_download_and_unpack_at_the_same_time(tmp_path: Path, published: CifarLayout) -> None:
    together, data = Barrier(4), tmp_path / "data"

    def load() -> int:
        together.wait()
        return len(load_cifar(published, data, download=True)[0])

    with ThreadPoolExecutor(4) as runners:
        assert [runner.result() for runner in [runners.submit(load) for _ in range(4)]] == [400] * 4
    assert sorted(path.name for path in data.iterdir()) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]
    gone = replace(published, url="http://127.0.0.1:9/cifar-10-python.tar.gz")
    assert len(load_cifar(gone, data)[0]) == 400, "read again without the web"


def test_a_download_with_another_checksum_leaves_nothing(tmp_path: Path, published: CifarLayout) -> None:
    with pytest.raises(DataError, match=r"checksum \w+, expected 0000.*Nothing was kept"):
        fetch(published.url, "0" * 64, tmp_path / "data" / "file")
    assert not list((tmp_path / "data").iterdir())


def test_a_download_without_server_is_an_error_with_the_address(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Download of http://127\.0\.0\.1:9/x failed: .*Run again"):
        fetch("http://127.0.0.1:9/x", "0" * 64, tmp_path / "file")


def test_a_truncated_archive_is_refused_and_kept(tmp_path: Path, published: CifarLayout) -> None:
    path = tmp_path / published.archive
    path.write_bytes(b"truncated")
    with pytest.raises(DataError, match=rf"checksum .*, expected {published.sha256}\. Remove it"):
        load_cifar(published, tmp_path, download=True)
    assert path.read_bytes() == b"truncated"


def test_an_archive_of_something_else_is_refused(tmp_path: Path, published: CifarLayout) -> None:
    other = tmp_path / "server" / "other" / published.archive
    other.parent.mkdir()
    other.write_bytes(b"no archive")
    layout = replace(published, url=other.as_uri(), sha256=hashlib.sha256(b"no archive").hexdigest())
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz does not hold cifar-10-batches-py"):
        load_cifar(layout, tmp_path, download=True)
    assert not (tmp_path / "cifar-10-batches-py").exists()
