"""The table of `lates demo` and `lates evaluate`: every number in its column, every verdict as its mark."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from lates.cli.table import METRICS, comparison_text, explain, short, show_demo_results
from lates.demo import LATES, NO_VIEWS, TEMPERATURE, Cost, Results
from lates.metrics import Comparison, Interval


def intervals(**values: tuple[float, ...]) -> dict[str, Interval]:
    return {metric: Interval(found[0], found[1], found[2], 0.95, 1000) for metric, found in values.items()}


BETTER = intervals(accuracy=(0.01,) * 3, ece=(-0.01,) * 3, nll=(0.01,) * 3, brier=(-0.01, -0.03, 0.01))
PLAIN = Comparison(
    rows=1234,
    classes=1000,
    draws=1000,
    measured={
        "network": intervals(accuracy=(0.9, 0.8, 1.0), ece=(0.1, 0.05, 0.2), nll=(12.345, 9.876, 15.0), brier=(0.25, 0.2, 0.3)),
        "lates": intervals(accuracy=(0.91, 0.81, 1.0), ece=(0.02, 0.01, 0.03), nll=(1.5, 1.25, 2.0), brier=(0.2, 0.1, 0.3)),
    },
    differences={"network": {}, "lates": {"network": BETTER}},
    ece_floor={"network": 0.0111, "lates": 0.0222},
)
AUC = {"plain": {"network": 0.9333, "lates": 0.9444}}


def test_table_shows_every_number_with_interval_and_mark() -> None:
    text = comparison_text({"plain": PLAIN}, AUC, "network", intervals=True).plain
    assert text.splitlines()[:7] == [
        "                   accuracy          ECE  floor          NLL        Brier    AUC",
        "",
        "plain, 1,234 rows, 1,000 classes",
        "  network             .9000        .1000  .0111        12.35        .2500  .9333",
        "                .8000–1.000  .0500–.2000         9.876–15.00  .2000–.3000",
        "  LATES               .9100*       .0200* .0222        1.500!       .2000  .9444",
        "                .8100–1.000  .0100–.0300         1.250–2.000  .1000–.3000",
    ]


def test_table_shortens_long_names_and_marks_nothing_without_baseline() -> None:
    name = "a_layer_far_below"
    alone = replace(PLAIN, measured={name: PLAIN.measured["lates"]}, differences={name: {}}, ece_floor={name: 0.0222})
    text = comparison_text({"plain": alone}, {"plain": {name: 0.9444}}, None, intervals=True).plain
    assert "  a_layer_far…        .9100        .0200  .0222" in text
    assert "comparisons" not in text


def test_explanation_counts_the_comparisons_of_all_sets_in_80_columns() -> None:
    text = explain(dict.fromkeys("abc", PLAIN), "network", True)
    assert max(map(len, text.splitlines())) <= 80
    assert "* better, ! worse than network beyond chance" in text
    assert "Of 12 comparisons, chance alone would mark about 0.6." in " ".join(text.split())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, ".0000"), (0.01234, ".0123"), (-0.5, "-.5000"), (1.0, "1.000"), (9.8765, "9.877"), (10.0, "10.00")],
)
def test_numbers_take_five_characters(value: float, text: str) -> None:
    assert short(value) == text


def demo_results() -> Results:
    """Two test sets; LATES is better twice and worse once on each, with views nothing is clear."""
    methods = ("network as is", TEMPERATURE, LATES, NO_VIEWS)
    unclear = intervals(**dict.fromkeys(METRICS, (0.0, -1.0, 1.0)))
    differences = {**{method: {} for method in methods}, LATES: {TEMPERATURE: BETTER}, NO_VIEWS: {TEMPERATURE: unclear}}
    found = Comparison(
        rows=500,
        classes=10,
        draws=1000,
        measured=dict.fromkeys(methods, PLAIN.measured["lates"]),
        differences=differences,
        ece_floor=dict.fromkeys(methods, 0.01),
    )
    auc: dict[str, float] = dict.fromkeys(methods, 0.9)
    cost = Cost({"layer1.0": 0.5, "layer1.1": 0.0, "head": 0.5}, 0.01, 2.0, 1.1)
    images = {"train": 1000, "holdout": 300, "test": 500}
    return Results(
        170_000,
        images,
        0,
        dict.fromkeys(("noise", "blur"), found),
        {"noise": auc, "blur": auc},
        {LATES: cost, NO_VIEWS: cost},
    )


def test_demo_text_counts_marks_and_ends_with_code_to_copy() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    show_demo_results(demo_results(), Console(file=stream, width=80))
    stream.seek(0)
    text = stream.read()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    table = text[: text.index("Lower is better")]
    assert (table.count("*"), table.count("!")) == (4, 2)
    assert {"LATES: 4 better, 2 worse.", "LATES, no views: 0 better, 0 worse."} <= set(lines)
    bars = {line.split()[0]: line.count("#") for line in lines if line.startswith(("layer", "head"))}
    assert bars == {"layer1.0": 18, "layer1.1": 0, "head": 18}
    code = text[text.index("import lates") :]
    compile(code, "next steps", "exec")
    assert len(code.strip().splitlines()) == 3
