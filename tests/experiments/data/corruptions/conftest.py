from pathlib import Path

import pytest
from PIL import Image

from tests.experiments.data.corruptions.references import SHADES


@pytest.fixture(scope="session")
def frost_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five photographs of one shade each, of different sizes."""
    folder = tmp_path_factory.mktemp("frost")
    for number, shade in enumerate(SHADES, start=1):
        Image.new("RGB", (400 + 10 * number, 300 + 20 * number), shade).save(folder / f"frost{number}.png")
    return folder


@pytest.fixture(autouse=True)
def _frost_at_hand(frost_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATES_FROST", str(frost_folder))
