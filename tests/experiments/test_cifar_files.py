"""CIFAR's pickles are read as they were written, by Python 2 too, and run no code."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.archives import DataError, read_pickle
from experiments.data import CIFAR, SAMPLE, load_cifar, load_sample
from tests.experiments.cifar_files import write_cifar10


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


def test_files_from_python_2_are_read(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (Payload(os.system, "touch {trap}"), r"(posix|nt)\.system"),
        (Payload(eval, "open('{trap}', 'w')"), r"builtin(s|__)\.eval"),
        (Payload(getattr, "", "join"), r"builtin(s|__)\.getattr"),
        (np.array([1], dtype=object), "an array of O8"),
        (np.zeros(3), "an array of f8"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_malicious_pickle_is_refused_and_never_runs(
    tmp_path: Path, payload: object, named: str, protocol: int
) -> None:
    trap = tmp_path / "trap"
    if isinstance(payload, Payload):
        function, arguments = payload.call
        payload = Payload(function, *(str(argument).replace("{trap}", str(trap)) for argument in arguments))
    (tmp_path / "bad").write_bytes(pickle.dumps({b"data": payload}, protocol=protocol))
    with pytest.raises(DataError, match=rf"bad is damaged or not a CIFAR file: .*{named}"):
        read_pickle(tmp_path / "bad")
    assert not trap.exists()


def test_bytes_in_another_encoding_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.")
    with pytest.raises(DataError, match="bytes encoded as hex"):
        read_pickle(tmp_path / "bad")


def test_a_wrong_folder_is_an_error_that_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No cifar-100-python in .*cifar-100-python\.tar\.gz, or leave --data out"):
        load_cifar(CIFAR["cifar100"], tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "data_batch_3 is damaged"),
        (lambda path: path.unlink(), "Cannot read .*data_batch_3: No such file"),
        (lambda path: path.write_bytes(pickle.dumps([1], protocol=2)), "data_batch_3 holds a list"),
        (lambda path: path.write_bytes(pickle.dumps({b"data": 3}, protocol=2)), "data_batch_3 has no ndarray b'data'"),
        (
            lambda path: path.write_bytes(pickle.dumps({b"data": np.zeros((2, 5), np.uint8)}, protocol=2)),
            r"images of shape \[2, 5\]; expected \[n, 3072\]",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(write_cifar10(tmp_path) / "data_batch_3")
    with pytest.raises(DataError, match=message):
        load_cifar(CIFAR["cifar10"], tmp_path)
