"""One process holds a folder, until it is done or dead."""

from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from experiments.runner.claims import CLAIM, claimed, is_claimed, share_of_cores
from tests.experiments.children import PROCESSES, start


def hold(folder: Path, held: Event, release: Event) -> None:
    with claimed(folder) as mine:
        if mine:
            held.set()
        release.wait()


def test_a_claim_is_exclusive_and_ends_with_the_with(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    assert not is_claimed(folder)
    with claimed(folder) as first, claimed(folder) as second:
        assert (first, second) == (True, False)
        assert is_claimed(folder)
    assert not is_claimed(folder)
    with claimed(folder) as again:
        assert again
    assert [path.name for path in folder.iterdir()] == [CLAIM]


def test_a_killed_runners_claim_is_free_at_once(tmp_path: Path) -> None:
    held, release = PROCESSES.Event(), PROCESSES.Event()
    process = start(hold, tmp_path, held, release)
    assert held.wait(60)
    assert is_claimed(tmp_path)
    process.kill()
    process.join()
    with claimed(tmp_path) as mine:
        assert mine


def test_runners_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    with claimed(tmp_path / "first"):
        assert share_of_cores(tmp_path) == 16
        with claimed(tmp_path / "second"), claimed(tmp_path / "third"):
            assert share_of_cores(tmp_path) == 5
    with claimed(tmp_path / "first"):
        assert share_of_cores(tmp_path) == 16, "what is over does not count"
