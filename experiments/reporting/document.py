"""`python -m experiments tables`: the pages that people read, and every table as CSV, from `results/` alone.

Pages are templates (`prose`) filled with tables and numbers: `RESULTS.md`, and one page a question in `results/`. Of
`README.md` the part between two comments is such a template too. With
`--check` nothing is written: everything is computed again, and every line that differs from what is written is an error.
"""

import argparse
import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from experiments.data.files import write_whole
from experiments.reporting.prose import PAGES, TemplateError, fill
from experiments.reporting.tables import make_tables
from experiments.reporting.tables.markdown import as_csv

FRONT, README = "RESULTS.md", "README.md"
_README_PART = re.compile(rf"(?<=<!-- filled from experiments/reporting/pages/{README} -->\n).*(?=<!-- end -->)", re.DOTALL)


class DocumentError(Exception):
    """What is written is not what the results give, or there are no results."""


def render(results: Path, root: Path) -> dict[Path, str]:
    """file -> its text: the front page and, where there is one, the README in `root`; other pages and CSVs in `results`."""
    if not results.is_dir():
        raise DocumentError(f"{results} is no folder. Run a recipe first, or give the folder of its results.")
    measured, tables = make_tables(results)
    filled = {page.name: fill(page.read_text("utf-8"), measured, tables) for page in sorted(PAGES.glob("*.md"))}
    part = filled.pop(README)
    pages = {(root if name == FRONT else results) / name: text for name, text in filled.items()}
    if (readme := root / README).exists():
        pages[readme], found = _README_PART.subn(lambda _: part, readme.read_text("utf-8"))
        if not found:
            raise DocumentError(f"{readme} lacks the two comments between which {PAGES / README} is filled in.")
    return pages | {results / "tables" / f"{name}.csv": as_csv(table) for name, table in tables.items()}


def check(files: dict[Path, str]) -> None:
    """Raise if a file is missing or differs."""
    written = {path: path.read_text("utf-8") if path.exists() else "" for path in files}
    differences = [
        "\n".join([str(path), *_changes(written[path], text)]) for path, text in files.items() if written[path] != text
    ]
    if differences:
        raise DocumentError(
            "These differ from what the results give (- written there, + computed now). If the results are right, run "
            "`python -m experiments tables`; sentences are changed in experiments/reporting/pages.\n\n"
            + "\n\n".join(differences)
        )


def _changes(written: str, computed: str) -> list[str]:
    lines = difflib.unified_diff(written.splitlines(), computed.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when done, 1 when something checked differs or there is nothing to make a page of."""
    parser = argparse.ArgumentParser(prog="python -m experiments tables", description="Write or check pages and tables.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the results, and of the pages")
    parser.add_argument("--out", type=Path, default=Path("."), help=f"folder of {FRONT}")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a line differs")
    chosen = parser.parse_args(arguments)
    try:
        files = render(chosen.results, chosen.out)
        if chosen.check:
            check(files)
    except (DocumentError, TemplateError) as error:
        print(error)
        return 1
    if not chosen.check:
        for path, text in files.items():
            write_whole(path, text.encode())
    print(f"{len(files)} files {'agree with' if chosen.check else 'written from'} {chosen.results}.")
    return 0
