"""Saving replaces a file whole or not at all, and nothing but a file."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lates
from tests.conftest import Problem


def test_the_longest_names_that_a_folder_takes_can_be_saved(tmp_path: Path, calibrated: lates.CalibratedModel) -> None:
    calibrated.save(tmp_path / ("n" * 255))
    assert [path.name for path in tmp_path.iterdir()] == ["n" * 255]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """As good as a device to replace by mistake, and made without rights."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("through", ["pipe", "link"])
def test_what_is_no_file_is_refused_and_stays(pipe: Path, calibrated: lates.CalibratedModel, through: str) -> None:
    (pipe.parent / "link").symlink_to(pipe)
    with pytest.raises(FileExistsError, match=rf"Cannot save to .*{through}: it is a pipe.* Name a file"):
        calibrated.save(pipe.parent / through)
    assert pipe.is_fifo()
    assert sorted(path.name for path in pipe.parent.iterdir()) == ["link", "pipe"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays(
    tmp_path: Path, problem: Problem, calibrated: lates.CalibratedModel, exists: bool
) -> None:
    link, file = tmp_path / "link", tmp_path / "elsewhere" / "file"
    file.parent.mkdir()
    if exists:
        file.write_text("old")
    link.symlink_to(file)
    calibrated.save(link)
    assert link.readlink() == file
    assert lates.load(file, problem.model).weights == calibrated.weights
    assert {*tmp_path.iterdir(), *file.parent.iterdir()} == {link, file.parent, file}


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, calibrated: lates.CalibratedModel) -> None:
    (tmp_path / "lost").symlink_to(tmp_path / "absent" / "file")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(FileNotFoundError, match=r"Cannot save to .*lost: there is no folder .*absent"):
        calibrated.save(tmp_path / "lost")
    with pytest.raises(OSError, match="round"):
        calibrated.save(tmp_path / "round")
    assert (tmp_path / "round").is_symlink()


def test_a_failure_before_the_rename_leaves_the_old_file_whole(
    saved: Path, calibrated: lates.CalibratedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def fail(*paths: object) -> None:
        raise OSError("no space left")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(OSError, match="no space left"):
                calibrated.save(saved)
        assert saved.read_bytes() == before
        assert list(saved.parent.iterdir()) == [saved]


FULL_DISK = """
import resource, sys, torch
import lates

resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
rows = torch.eye(3)
lates.calibrate(torch.nn.Linear(3, 3), holdout=[(rows, torch.arange(3))], blocks=[], progress=False).save(sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as Unix does")
def test_a_disk_without_room_is_told_with_the_path_and_leaves_the_old_file_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *_, told = done.stderr.splitlines()
    assert told.startswith(f"OSError: [Errno {errno.EFBIG}] Cannot save ")
    assert f"bytes to {tmp_path / 'file'}: File too large. Nothing there has changed. Make room" in told
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_saving_again_replaces_the_file(saved: Path, problem: Problem, calibrated: lates.CalibratedModel) -> None:
    scaled = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], progress=False)
    scaled.save(saved)
    assert lates.load(saved, problem.model).weights == scaled.weights
    assert list(saved.parent.iterdir()) == [saved]
