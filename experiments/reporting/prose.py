"""Pages: templates whose tables and numbers are filled in from the results, so that no number in a sentence can go stale.

A template in `pages/` holds `{{…}}` where something is filled in:

    {{table NAME}}                                   a table, as Markdown
    {{columns NAME | COLUMN | COLUMN}}               some columns of it, without title and note
    {{cell NAME | ROW | COLUMN}}                     one cell of it; rows go by what their first column holds
    {{significant NAME}}                             1 of 4 (CIFAR-100, corrupted): its rows with a p after Holm below .05
    {{probe_images RECIPE DATASET}}                  150: of each class
    {{scores PLACES COLUMNS METHODS}}                a table of means: a row for each method, for instance
                                                     {{scores strong:cifar100,strong:cifar10 nll:clean,ece:bar temperature sms}}
                                                     with several places and columns a cell holds all places: 1.375 / 0.320
    {{gains PLACES COLUMNS METHOD RIVAL}}            a table of gains with intervals, likewise
    {{better PLACE COLUMNS METHOD RIVALS}}           a table: on how many networks METHOD is better
    {{mean METRIC SETS PLACE METHOD}}                1.375
    {{percent METRIC SETS PLACE METHOD RIVAL}}       15 %: the gain as a share of the rival's mean
    {{each METRIC SETS PLACE METHOD RIVAL}}          15 % (VGG16) and 3 % (small ViT): that of every architecture
    {{interval METRIC SETS PLACE METHOD RIVAL}}      [−0.0116, +0.0452]: 95 %, of the gain, t over architectures
    {{wins METRIC SETS PLACE METHOD RIVAL}}          9 of 9: networks on which METHOD is better
    {{ahead METRIC SETS PLACE METHOD}}               5 of 7: networks on which METHOD is better than every rival
    {{worse METRIC SETS PLACE METHOD RIVAL}}         4 of 399: test sets, of all networks, on which METHOD is worse
    {{where METRIC SETS PLACE METHOD RIVAL}}         pixelate at severity 5 (4 networks, by 0.059 to 0.477): those test sets
    {{least METRIC SETS PLACE METHOD RIVAL}}         from 1.19 to 1.12 (small ViT): where METHOD is better by least
    {{names PLACE}}                                  ResNet18, VGG16 and small ViT
    {{networks PLACE}}                               9
    {{seeds PLACE}}                                  3, or 1 to 3
    {{most FACT PLACE METHOD}}                       1.00 %: the largest share that METHOD adds to a network

SETS is clean, corrupted, like or unlike (the jitter), bar or natural, or a type of corruption. PLACE is `both`, a data set, or
`DATASET/NETWORK`; with `#SEED` for one seed, `?METHOD` for those networks on which a method was run, `@TRAIN` for a share of
the training split, `~RATE` for dropout; after `strong:` where networks of the strong recipe are meant (WRN-28-10 has one of its
own), after `public:` for released ones, after `again:` for the one trained twice. COLUMNS are METRIC:SETS; PLACES and COLUMNS
are joined by commas; of PLACES `DATASET/*` is each network that was run. What was not run on every network of a place reads
"not run".
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.recipes import RECIPES
from experiments.reporting.method_tables import better_table, gain_table, score_table
from experiments.reporting.places import Place, check_methods, check_metric, group_named, listed
from experiments.reporting.quantities import ALONE, QUANTITIES, Quantity
from experiments.reporting.summaries import Measured
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, grid, markdown, number

PAGES = Path(__file__).parent / "pages"
_FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_OTHERS = (
    "cell",
    "columns",
    "significant",
    "probe_images",
    "scores",
    "gains",
    "better",
    "names",
    "networks",
    "seeds",
    "most",
)


class TemplateError(Exception):
    """A field of a template that cannot be filled."""


def fill(template: str, measured: Sequence[Measured], tables: Mapping[str, Table]) -> str:
    """The page of a template. A field may go over the end of a line, also of a quoted one."""

    def filled(field: re.Match[str]) -> str:
        words = field[1].replace(">", " ").split()
        try:
            return _value(words, measured, tables)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            known = f"tables: {', '.join(sorted(tables))}; quantities: {', '.join((*QUANTITIES, *_OTHERS))}"
            raise TemplateError(f"{{{{{' '.join(words)}}}}} cannot be filled: {error}. Known {known}.") from error

    return _FIELD.sub(filled, template)


def _value(words: list[str], measured: Sequence[Measured], tables: Mapping[str, Table]) -> str:
    match words:
        case ["table", name]:
            return markdown(tables[name]).rstrip("\n")
        case ["columns", *_]:
            name, *columns = " ".join(words[1:]).split(" | ")
            table, places = tables[name], [tables[name].header.index(column) for column in columns]
            rows = [tuple(row[place] for place in places) for row in table.rows]
            return grid(tuple(columns), rows, sum(place < table.text_columns for place in places))
        case ["significant", name]:
            p = tables[name].header.index("p, Holm")
            below = [row[0] for row in tables[name].rows if row[p] != ABSENT and float(row[p].lstrip("< ")) < 0.05]
            return f"{len(below)} of {len(tables[name].rows)}" + (f" ({'; '.join(below)})" if below else "")
        case ["probe_images", recipe, dataset]:
            return str(RECIPES[recipe].probe_images[dataset])
        case ["cell", *_]:
            name, start, column = " ".join(words[1:]).split(" | ")
            table = tables[name]
            found = [row for row in table.rows if row[0] == start]
            return found[0][table.header.index(column)] if found or table.rows else NOT_RUN
        case ["scores", places, columns, *methods]:
            return score_table(measured, places, columns, methods)
        case ["gains", places, columns, method, rival]:
            return gain_table(measured, places, columns, method, rival)
        case ["better", place, columns, method, *rivals]:
            return better_table(measured, place, columns, method, rivals)
        case ["names", place]:
            return listed([cells[0].title for cells in Place(place).networks(measured) if cells]) or NOT_RUN
        case ["networks", place]:
            return str(sum(map(len, Place(place).networks(measured))))
        case ["seeds", place]:
            counts = sorted({len(cells) for cells in Place(place).networks(measured) if cells})
            return " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else NOT_RUN
        case ["most", fact, place, method]:
            check_methods(method)
            cells = [cell for cells in Place(place).networks(measured) for cell in cells]
            return f"{number(max(100 * cell.fact('methods', method, fact) for cell in cells), 2)} %" if cells else NOT_RUN
        case [kind, metric, sets, place, *methods]:
            check_metric(metric)
            check_methods(*methods)
            if len(methods) != 2 - (kind in ALONE):
                raise ValueError(f"{len(methods)} methods where it needs {2 - (kind in ALONE)}")
            networks = Place(place).networks(measured, ensemble=methods == ["ensemble"])
            return QUANTITIES[kind](Quantity(networks, metric, group_named(sets), *methods))
    raise ValueError("there is no such field")
