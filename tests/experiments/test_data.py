"""Data come in unharmed or not at all: pickles that run no code, downloads that resume, splits that never overlap."""

import hashlib
import io
import os
import pickle
import re
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from experiments.archives import DataError, fetch, read_pickle, unpack
from experiments.data import (
    CIFAR,
    CifarLayout,
    ImageSet,
    decode_batches,
    in_order,
    load_cifar,
    load_folder,
    load_sample,
    scale,
    split_indices,
)

SAMPLE = Path(__file__).with_name("cifar10_600.npz")


# Images in memory


def test_the_sample_is_balanced_and_its_parts_differ() -> None:
    train, test = load_sample(SAMPLE)
    assert train.labels.bincount().tolist() == [40] * 10
    assert test.labels.bincount().tolist() == [20] * 10
    distinct = {bytes(image.numpy().tobytes()) for image in torch.cat([train.images, test.images])}
    assert len(distinct) == 600


def test_a_sample_cut_in_half_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    half = tmp_path / "half.npz"
    half.write_bytes(SAMPLE.read_bytes()[: SAMPLE.stat().st_size // 2])
    with pytest.raises(DataError, match=r"Cannot read images from .*half\.npz"):
        load_sample(half)


def test_scale_maps_bytes_to_the_unit_interval() -> None:
    assert scale(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])


def test_select_keeps_the_order_asked_for() -> None:
    train, _ = load_sample(SAMPLE)
    chosen = train.select(torch.tensor([7, 3]))
    assert torch.equal(chosen.images, train.images[[7, 3]])
    assert chosen.labels.tolist() == train.labels[[7, 3]].tolist()


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64), r"uint8 .*got torch\.float32 \[2, 3, 4, 4\]"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), r"shape \[2\]; got .*\[3\]"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]), r"2 classes lie in 0…1; got 0…2"),
    ],
)
def test_an_image_set_refuses_what_does_not_fit(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ImageSet(images, labels, ("a", "b"))


# Splits


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    holdout=st.floats(0, 0.5),
    small=st.floats(0.01, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_splits_are_disjoint_stratified_and_nested(counts: list[int], holdout: float, small: float, seed: int) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    full = split_indices(labels, train_fraction=1 - holdout, holdout_fraction=holdout, seed=seed)
    part = split_indices(labels, train_fraction=small * (1 - holdout), holdout_fraction=holdout, seed=seed)
    less = split_indices(labels, train_fraction=1 - holdout, holdout_fraction=small * holdout, seed=seed)
    train, held = set(full.train.tolist()), set(full.holdout.tolist())
    assert not train & held
    assert set(part.train.tolist()) <= train
    assert torch.equal(part.holdout, full.holdout)
    assert set(less.holdout.tolist()) <= held
    for label, count in enumerate(counts):
        assert abs(int((labels[full.train] == label).sum()) - (1 - holdout) * count) <= 1
        assert abs(int((labels[full.holdout] == label).sum()) - holdout * count) <= 0.5


def test_a_split_is_the_same_for_ever_and_its_digest_tells_splits_apart() -> None:
    labels = torch.arange(50_000) % 10
    split = split_indices(labels, train_fraction=0.9, holdout_fraction=0.1, seed=0)
    assert (len(split.train), len(split.holdout)) == (45_000, 5_000)
    assert split.digest == "bb6c33f3eb88"
    others = [(0.9, 0.1, 1), (0.5, 0.1, 0), (0.9, 0.02, 0)]
    digests = {split_indices(labels, train_fraction=t, holdout_fraction=h, seed=s).digest for t, h, s in others}
    assert len({split.digest} | digests) == 4


def test_fractions_above_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sum to at most 1; got train 0\.95, hold-out 0\.1"):
        split_indices(torch.zeros(10, dtype=torch.int64), train_fraction=0.95, holdout_fraction=0.1, seed=0)


# CIFAR's files


def write_cifar10(folder: Path, protocol: int = 2) -> Path:
    """The sample in the official layout: 400 images in five batches, 200 for the test."""
    root = folder / "cifar-10-batches-py"
    root.mkdir(parents=True)
    train, test = load_sample(SAMPLE)
    parts = {f"data_batch_{i + 1}": train.select(torch.arange(80) + 80 * i) for i in range(5)} | {"test_batch": test}
    for name, part in parts.items():
        content = {
            b"batch_label": b"a batch",
            b"data": part.images.flatten(1).numpy(),
            b"labels": part.labels.tolist(),
            b"filenames": [b"one.png"] * len(part),
        }
        (root / name).write_bytes(pickle.dumps(content, protocol=protocol))
    names = [name.encode() for name in train.classes]
    (root / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=protocol))
    return root


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


# Downloads


class Server:
    """A web server with one file. It can hang up after some bytes of each answer, or know nothing of ranges."""

    def __init__(self, content: bytes, *, hang_up_after: int | None = None, ranges: bool = True) -> None:
        self.content, self.hang_up_after, self.ranges = content, hang_up_after, ranges
        self.asked: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers["Range"]
                server.asked.append(wanted)
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
                if start >= len(server.content):
                    self.send_error(416)
                    return
                rest = server.content[start:]
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                self.wfile.write(rest[: server.hang_up_after])

            def log_message(self, format: str, *args: object) -> None:
                """Silence."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/cifar-10-python.tar.gz"
        Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(content: bytes, *, hang_up_after: int | None = None, ranges: bool = True) -> Server:
        started.append(Server(content, hang_up_after=hang_up_after, ranges=ranges))
        return started[-1]

    yield start
    for server in started:
        server.http.shutdown()
        server.http.server_close()


def visible(folder: Path) -> list[str]:
    """What lies there but for the locks, which stay."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


CONTENT = np.random.default_rng(0).bytes(200_000)


@pytest.fixture
def goal(tmp_path: Path) -> Path:
    return tmp_path / "below" / "file"


def test_a_download_arrives_and_is_not_repeated(goal: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT)
    for _ in range(2):
        fetch(server.url, server.sha256, goal)
        assert goal.read_bytes() == CONTENT
    assert server.asked == [None]
    assert visible(goal.parent) == [goal.name]


def test_a_broken_connection_is_resumed_where_it_broke(goal: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT, hang_up_after=70_000)
    fetch(server.url, server.sha256, goal)
    assert goal.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=70000-", "bytes=140000-"]


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(goal: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT, hang_up_after=70_000)
    with pytest.raises(DataError, match=r"stopped after 140000 bytes.*Run again"):
        fetch(server.url, server.sha256, goal, attempts=2)
    assert not goal.exists()
    fetch(server.url, server.sha256, goal, attempts=1)
    assert goal.read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_taken(goal: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT)
    goal.parent.mkdir()
    goal.with_name("file.part").write_bytes(CONTENT)
    fetch(server.url, server.sha256, goal)
    assert goal.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_whole_anew(goal: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT, ranges=False)
    goal.parent.mkdir()
    goal.with_name("file.part").write_bytes(b"an old beginning")
    fetch(server.url, server.sha256, goal)
    assert goal.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing_behind(goal: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT)
    with pytest.raises(DataError, match=rf"checksum {server.sha256}, expected 0000.*Nothing was kept"):
        fetch(server.url, "0" * 64, goal)
    assert visible(goal.parent) == []


def test_no_server_is_an_error_with_the_address(goal: Path) -> None:
    with pytest.raises(DataError, match=r"Download of http://127\.0\.0\.1:9/x stopped after 0 bytes"):
        fetch("http://127.0.0.1:9/x", "0" * 64, goal, attempts=2)


def pack_cifar10(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(write_cifar10(folder), "cifar-10-batches-py")
    return packed.getvalue()


def layout_at(server: Server) -> CifarLayout:
    return replace(CIFAR["cifar10"], url=server.url, sha256=server.sha256)


def test_cifar_is_downloaded_once_and_then_read_from_disk(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve(pack_cifar10(tmp_path / "origin"), hang_up_after=1_000_000)
    for _ in range(2):
        train, test = load_cifar(layout_at(server), tmp_path / "data", download=True)
        assert (len(train), len(test)) == (400, 200)
    assert server.asked[0] is None
    assert all(wanted is not None for wanted in server.asked[1:])
    assert visible(tmp_path / "data") == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


def test_several_first_runners_share_one_download(tmp_path: Path, serve: Callable[..., Server]) -> None:
    """All find nothing and begin at the same moment; one downloads and unpacks, all read."""
    server = serve(pack_cifar10(tmp_path / "origin"))
    together = Barrier(4)

    def load() -> int:
        together.wait()
        train, _ = load_cifar(layout_at(server), tmp_path / "data", download=True)
        return len(train)

    with ThreadPoolExecutor(4) as runners:
        assert [runner.result() for runner in [runners.submit(load) for _ in range(4)]] == [400] * 4
    assert server.asked == [None]
    assert visible(tmp_path / "data") == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


def test_who_waited_for_another_to_unpack_finds_it_done(tmp_path: Path) -> None:
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(pack_cifar10(tmp_path / "origin"))
    together = Barrier(4)

    def unpack_at_once() -> None:
        together.wait()
        unpack(archive, "cifar-10-batches-py")

    with ThreadPoolExecutor(4) as runners:
        for runner in [runners.submit(unpack_at_once) for _ in range(4)]:
            runner.result()
    assert len(list((tmp_path / "cifar-10-batches-py").iterdir())) == 7


def test_a_truncated_archive_is_refused_and_kept_for_its_owner(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve(pack_cifar10(tmp_path / "origin"))
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(server.content[:1000])
    with pytest.raises(DataError, match=rf"checksum .*, expected {server.sha256}\. Remove it"):
        load_cifar(layout_at(server), tmp_path, download=True)
    assert archive.stat().st_size == 1000
    archive.write_bytes(server.content)
    assert len(load_cifar(layout_at(server), tmp_path)[0]) == 400
    assert server.asked == []


def test_an_archive_of_something_else_is_refused(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve(CONTENT)
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz does not hold cifar-10-batches-py"):
        load_cifar(layout_at(server), tmp_path, download=True)
    assert not (tmp_path / "cifar-10-batches-py").exists()


# Folders of images


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two classes: a red JPEG and a green PNG of odd sizes, and a file that is no image."""
    root = tmp_path / "tree"
    for name in ("ash", "birch"):
        (root / name).mkdir(parents=True)
    Image.new("RGB", (90, 61), (250, 0, 0)).save(root / "ash" / "one.JPEG")
    Image.new("P", (40, 77), 0).save(root / "ash" / "two.png")
    Image.new("RGB", (48, 48), (0, 250, 0)).save(root / "birch" / "three.png")
    (root / "birch" / "notes.txt").write_text("not an image")
    return root


def test_a_folder_is_read_class_by_class(tree: Path) -> None:
    data = load_folder(tree, size=32)
    assert data.classes == ("ash", "birch")
    assert data.labels.tolist() == [0, 0, 1]
    images, labels = next(decode_batches(data, in_order(3, 3), workers=0))
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [0, 0, 1]
    assert images[0].float().mean((1, 2)).tolist() == pytest.approx([250, 0, 0], abs=6)
    assert images[2].float().mean((1, 2)).tolist() == [0, 250, 0]


def test_the_centre_is_cut_out(tmp_path: Path) -> None:
    """Of 64 x 128 pixels the square of 56 around the centre remains; at size 56 nothing is resampled."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 128, 3), dtype=np.uint8)
    (tmp_path / "class").mkdir()
    Image.fromarray(pixels).save(tmp_path / "class" / "image.png")
    image, _ = load_folder(tmp_path, size=56)[0]
    assert np.array_equal(image.numpy(), pixels[4:60, 36:92].transpose(2, 0, 1))


def test_a_corrupt_image_is_named_even_from_a_worker(tree: Path) -> None:
    whole = (tree / "birch" / "three.png").read_bytes()
    (tree / "birch" / "three.png").write_bytes(whole[: len(whole) // 2])
    for workers in (0, 1):
        with pytest.raises(DataError) as fault:
            list(decode_batches(load_folder(tree, size=32), in_order(3, 2), workers))
        assert re.fullmatch(r"Cannot decode \S*three\.png: .*\. Replace or remove the file\.", str(fault.value))


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no folders"):
        load_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty holds no JPEG or PNG"):
        load_folder(tmp_path)
