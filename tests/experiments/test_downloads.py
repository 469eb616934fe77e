"""Downloads arrive whole or not at all, go on where they broke, and happen once."""

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

from experiments.archives import DataError, fetch, unpack
from experiments.data import CIFAR, CifarLayout, load_cifar
from tests.experiments.cifar_files import write_cifar10


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
