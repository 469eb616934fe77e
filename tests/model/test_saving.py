"""Saving replaces a file whole or not at all, and nothing but a file."""

import os
from pathlib import Path
from typing import Any

import pytest

import lates
from tests.conftest import Problem


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


def test_a_failure_before_the_rename_leaves_the_old_file_whole_and_names_where_the_new_one_is(
    saved: Path, calibrated: lates.CalibratedModel, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    before, rescued = saved.read_bytes(), tmp_path_factory.mktemp("rescued")
    monkeypatch.setattr("tempfile.tempdir", str(rescued))

    def fail(*paths: object) -> None:
        raise OSError("no space left")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(OSError, match=r"Cannot save .* bytes to .*: no space left\. Nothing there has changed") as said:
                calibrated.save(saved)
        (kept,) = rescued.iterdir()
        assert f"What was to be saved is in {kept}: move it" in str(said.value)
        assert kept.read_bytes() == before
        kept.unlink()
        assert saved.read_bytes() == before
        assert list(saved.parent.iterdir()) == [saved]


def test_new_file_has_the_mode_of_the_umask_and_a_replaced_one_keeps_its_mode(
    tmp_path: Path, calibrated: lates.CalibratedModel
) -> None:
    path, before = tmp_path / "file", os.umask(0o022)
    try:
        calibrated.save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o640)
    calibrated.save(path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no nameless files")
def test_a_file_has_no_name_until_it_is_whole_so_that_a_killed_write_leaves_nothing(
    tmp_path: Path, calibrated: lates.CalibratedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(list(tmp_path.iterdir())))
    calibrated.save(tmp_path / "file")
    assert seen == [[]]
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_folder_that_takes_no_file_is_refused_before_the_work(tmp_path: Path, calibrated: lates.CalibratedModel) -> None:
    """A limit on the size of files stands for a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=r"Cannot save to .*report: File too large\. Make room .*or save elsewhere"):
            lates.write_report(calibrated, [], tmp_path / "report")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
