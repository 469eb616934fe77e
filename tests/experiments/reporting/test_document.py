"""Tables in files and in a document: written, and checked against the results."""

import re
from pathlib import Path

import pytest

from experiments.reporting.tables import TablesDifferError, main, render_tables, write_tables
from experiments.reporting.tables.markdown import DocumentError, embed
from tests.experiments.reporting.synthetic import write_cell


@pytest.fixture(scope="module")
def few_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("few")
    write_cell(results, "in_distribution", "cifar10", "vgg16", 0, sets=["clean"])
    write_cell(results, "mc_dropout", "cifar10", "wide_resnet_28_10", 0, dropout=0.2, sets=["clean"])
    return results


@pytest.fixture
def written(few_results: Path, tmp_path: Path) -> tuple[Path, Path]:
    """(folder of tables, document), as `write_tables` leaves them."""
    out, document = tmp_path / "tables", tmp_path / "RESULTS.md"
    document.write_text(
        "# Results\n\n<!-- table: cost -->\nold\n<!-- end -->\n\nText.\n<!-- table: pitfall -->\n<!-- end -->\n"
    )
    write_tables(few_results, out, document=document)
    return out, document


def test_tables_are_written_to_files_and_into_the_document(
    few_results: Path, tmp_path: Path, written: tuple[Path, Path]
) -> None:
    out, document = written
    found = {path.stem: path.read_text() for path in out.iterdir()}
    assert found == render_tables(few_results)
    assert found.keys() == render_tables(tmp_path / "nothing").keys()
    text = document.read_text()
    assert text.startswith(f"# Results\n\n<!-- table: cost -->\n{found['cost']}<!-- end -->\n\nText.\n")
    assert "old" not in text


def test_check_passes_on_what_was_written_and_writes_nothing(few_results: Path, written: tuple[Path, Path]) -> None:
    out, document = written
    before = {path: path.stat().st_mtime_ns for path in (*out.iterdir(), document)}
    assert main([f"--results={few_results}", f"--out={out}", f"--document={document}", "--check"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (*out.iterdir(), document)}


def test_check_fails_if_one_number_differs(
    few_results: Path, written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out, document = written
    file = out / "in_distribution.md"
    file.write_text(file.read_text().replace("0.0060", "0.0061", 1))
    document.write_text(document.read_text().replace("0.357", "0.358"))
    assert main([f"--results={few_results}", f"--out={out}", f"--document={document}", "--check"]) == 1
    said = capsys.readouterr().out
    assert "in_distribution.md" in said
    assert 'RESULTS.md, table "pitfall"' in said
    assert "0.358" in said
    assert "cost.md" not in said


def test_check_without_tables_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(TablesDifferError, match="Nothing to check"):
        write_tables(tmp_path, tmp_path / "tables", check=True, document=tmp_path / "RESULTS.md")


def test_an_unknown_marker_names_the_tables_there_are() -> None:
    with pytest.raises(DocumentError, match=r'Unknown table "costs".*: cost, pitfall'):
        embed("<!-- table: costs -->\n<!-- end -->\n", {"cost": "", "pitfall": ""})


@pytest.mark.parametrize(
    "document",
    [
        "<!-- table: cost -->\nno end\n",
        "<!-- table: cost -->\n<!-- end -->\n<!-- table: cost -->\n<!-- end -->\n",
        "<!-- table: cost -->\n<!-- table: pitfall -->\n<!-- end -->\n",
    ],
)
def test_markers_that_do_not_pair_are_refused(document: str) -> None:
    with pytest.raises(DocumentError, match=r"look at: (cost|pitfall)"):
        embed(document, {"cost": "", "pitfall": ""})


def test_the_numbers_of_this_repository_s_results_are_those_of_its_files() -> None:
    root = Path(__file__).parents[3]
    assert "table: search_resnet18" in (root / "RESULTS.md").read_text()
    arguments = [f"--results={root / 'results'}", f"--out={root / 'results' / 'tables'}"]
    assert main([*arguments, f"--document={root / 'RESULTS.md'}", "--check"]) == 0


def test_a_folder_that_is_not_there_is_an_error_and_success_is_said(
    few_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"--out={tmp_path / 'tables'}", f"--document={tmp_path / 'RESULTS.md'}"]
    assert main([f"--results={tmp_path / 'nowhere'}", *places]) == 1
    assert "nowhere is no folder" in capsys.readouterr().out
    assert not (tmp_path / "tables").exists()
    assert main([f"--results={few_results}", *places]) == 0
    assert re.search(r"\d+ tables written to ", capsys.readouterr().out)
