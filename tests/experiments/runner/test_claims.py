"""One process holds a folder, until it is done or dead."""

import os
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from experiments.runner.claims import CLAIM, claimed, read_claim
from tests.experiments.children import PROCESSES, start


def hold(folder: Path, held: Event, release: Event) -> None:
    with claimed(folder) as mine:
        if mine:
            held.set()
        release.wait()


def test_a_claim_is_exclusive_and_ends_with_the_with(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    assert read_claim(folder) is None
    with claimed(folder) as first:
        assert first
        with claimed(folder) as second:
            assert not second
        assert (read_claim(folder) or "").startswith(f"process {os.getpid()} on ")
    assert read_claim(folder) is None
    with claimed(folder) as again:
        assert again
    assert [path.name for path in folder.iterdir()] == [CLAIM]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"pid": 3}', b"\xff\xfe{", b"[" * 4000])
def test_a_damaged_claim_still_counts(tmp_path: Path, content: bytes) -> None:
    with claimed(tmp_path):
        (tmp_path / CLAIM).write_bytes(content)
        assert read_claim(tmp_path) == f"another process ({tmp_path / CLAIM} does not say which)"


def test_a_killed_runners_claim_is_free_at_once(tmp_path: Path) -> None:
    held, release = PROCESSES.Event(), PROCESSES.Event()
    process = start(hold, tmp_path, held, release)
    assert held.wait(60)
    with claimed(tmp_path) as mine:
        assert not mine
    assert read_claim(tmp_path) is not None
    process.kill()
    process.join()
    with claimed(tmp_path) as mine:
        assert mine
