from pathlib import Path

import pytest

from tests.cli_problem import Folder, make_folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("theirs"))


@pytest.fixture
def folder(made: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The user's module can be imported; the current folder is empty."""
    monkeypatch.syspath_prepend(made.path)
    monkeypatch.chdir(tmp_path)
    return made
