"""Recipes: notebooks are made from the pages, whose code `test_docs.py` runs; with the real torchvision too, where it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from docs.notebooks import NOTEBOOKS, RECIPES, make_notebook, record
from docs.pieces import pieces_of
from tests.integrations.test_torchvision import library

NAMES = sorted(path.stem for path in RECIPES.glob("*.md"))
LARGEST = 20_000


def test_there_is_a_recipe_for_every_kind_of_use() -> None:
    assert NAMES == ["images", "logits", "serving", "shift", "tables", "text"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_made_from_its_page(name: str) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    assert path.read_text("utf-8") == make_notebook((RECIPES / f"{name}.md").read_text("utf-8")), (
        "run: python -m docs.notebooks"
    )
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_holds_the_code_and_the_outputs_of_its_page(name: str) -> None:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    pieces = pieces_of(f"recipes/{name}.md")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]) for cell in code] == [p.text.strip() for p in pieces if p.language == "python"]
    outputs = ["".join(output["text"]) for cell in code for output in cell["outputs"]]
    assert outputs == [piece.text for piece in pieces if piece.language == "text"]
    assert all(outputs), "run: python -m docs.notebooks record …"


def test_recording_writes_what_the_code_prints_and_nothing_else() -> None:
    page = "# A\n\n```python\nprint(1)\n```\n\n<!-- recorded -->\n```text\nold\n```\n\nEnd, `x`.\n"
    assert record(page) == page.replace("old", "1")


@pytest.mark.filterwarnings("ignore")
def test_the_recipe_for_images_runs_with_the_real_torchvision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torchvision = library("torchvision")

    def fake_images(root: str, train: bool, download: bool, transform: Any) -> Any:
        return torchvision.datasets.FakeData(600, (3, 32, 32), 10, transform)

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", fake_images)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with torch.random.fork_rng([]):
        for piece in pieces_of("recipes/images.md"):
            if piece.language == "python":
                exec(compile(piece.text, "images.md", "exec"), names)
    assert "LATES" in capsys.readouterr().out
