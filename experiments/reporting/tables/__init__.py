"""`python -m experiments tables`: every table of the paper and of ours, from `results/` alone.

Each table is one function of what was measured; each is written to its own Markdown file, and into RESULTS.md wherever
that has the lines `<!-- table: NAME -->` and `<!-- end -->`. With `--check` nothing is written: the tables are computed
again and every line that differs from what is written there is an error.
"""

import argparse
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.data.files import write_whole
from experiments.reporting.summaries import Measured, read_measured
from experiments.reporting.tables.comparisons import anova_table, effects, expectations, mc_dropout_gains, wilcoxon
from experiments.reporting.tables.costs import cells, cost, depth, timing_table
from experiments.reporting.tables.gains import budget, holdout_size, low_data, relative_gain
from experiments.reporting.tables.markdown import DocumentError, Table, embed, embedded, markdown
from experiments.reporting.tables.scores import (
    again,
    against_shift,
    controls,
    imagenet,
    in_distribution,
    jitter,
    mc_dropout,
    out_of_distribution,
)
from experiments.reporting.tables.search import search_tables
from experiments.reporting.tables.theory import pitfall, proposition

TABLES: tuple[Callable[[Sequence[Measured]], Table], ...] = (
    expectations, in_distribution, out_of_distribution, jitter, relative_gain, low_data, holdout_size, budget, controls,
    against_shift, imagenet, mc_dropout, mc_dropout_gains, wilcoxon, anova_table, effects, cost, depth, cells, again, pitfall,
    proposition,
)  # fmt: skip

DOCUMENT = Path("RESULTS.md")


class TablesDifferError(Exception):
    """What is written in a file is not what the results give."""


class NoResultsError(Exception):
    """There is no folder of results."""


def render_tables(results: Path) -> dict[str, str]:
    """name -> Markdown, of the results as they are now; without results, tables of what is missing."""
    measured = read_measured(results)
    tables = [*(make(measured) for make in TABLES), *search_tables(results), timing_table(results / "timing")]
    return {table.name: markdown(table) for table in tables}


def write_tables(results: Path, out: Path, check: bool = False, document: Path = DOCUMENT) -> list[str]:
    """Write `out/NAME.md` and the tables inside `document`, if there is one; or, with `check`, compare with them.

    Returns the names of the tables.
    """
    if not results.is_dir():
        raise NoResultsError(f"{results} is no folder. Run a recipe first, or give the folder of its results.")
    texts = render_tables(results)
    if check:
        _check(texts, out, document)
        return list(texts)
    for name, text in texts.items():
        write_whole(out / f"{name}.md", text.encode())
    if document.exists():
        write_whole(document, embed(document.read_text(), texts).encode())
    return list(texts)


def _check(texts: dict[str, str], out: Path, document: Path) -> None:
    """Compare all that is written in files; a table that is in none of them cannot differ."""
    written = {
        f"{path}": (path.read_text(), texts[path.stem]) for path in sorted(out.glob("*.md")) if path.stem in texts
    }
    if document.exists():
        marked = embedded(document.read_text(), frozenset(texts))
        written |= {f'{document}, table "{name}"': (text, texts[name]) for name, text in marked.items()}
    if not written:
        raise TablesDifferError(
            f"Nothing to check: no table in {out} or {document}. Run `python -m experiments tables`."
        )
    differences = [
        f"{place}\n" + "\n".join(_changes(text, computed))
        for place, (text, computed) in written.items()
        if text != computed
    ]
    if differences:
        raise TablesDifferError(
            "These differ from what the results give (- written there, + computed now). If the results are right, run "
            "`python -m experiments tables`.\n\n" + "\n\n".join(differences)
        )


def _changes(written: str, computed: str) -> list[str]:
    lines = difflib.unified_diff(written.splitlines(), computed.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when done, 1 when a checked table differs or there is nothing to make one of."""
    parser = argparse.ArgumentParser(prog="python -m experiments tables", description="Write or check every table.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of CSV and JSON files")
    parser.add_argument("--out", type=Path, default=Path("results/tables"), help="folder of the Markdown files")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="document with tables between markers")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a number differs")
    chosen = parser.parse_args(arguments)
    try:
        names = write_tables(chosen.results, chosen.out, chosen.check, chosen.document)
    except (TablesDifferError, DocumentError, NoResultsError) as error:
        print(error)
        return 1
    done = f"agree with {chosen.results}" if chosen.check else f"written to {chosen.out}"
    print(f"{len(names)} tables {done}.")
    return 0
