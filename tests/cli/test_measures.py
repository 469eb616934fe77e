"""The table of `lates evaluate`, number by number, and what it calls better or worse."""

from dataclasses import replace

import pytest
import torch

import lates
from lates.cli.measures import COLUMNS, MeasuredSet, explanation, measure, measures_lines, short
from lates.metrics import Interval
from lates.report.predictions import LATES, NETWORK, TEMPERATURE, Predictions
from lates.report.resampling import Intervals


def intervals(**values: tuple[float, float, float]) -> Intervals:
    return {metric: Interval(*found, 0.95, 1000) for metric, found in values.items()}


def differences(value: float) -> Intervals:
    """Of every metric the same, as sure as can be."""
    return intervals(**dict.fromkeys(COLUMNS, (value, value, value)))


PLAIN = MeasuredSet(
    name="plain",
    rows=1234,
    classes=1000,
    draws=1000,
    measured={
        NETWORK: intervals(
            accuracy=(0.9, 0.8, 1.0), ece=(0.1, 0.05, 0.2), nll=(12.345, 9.876, 15.0), brier=(0.25, 0.2, 0.3)
        ),
        LATES: intervals(
            accuracy=(0.91, 0.81, 1.0), ece=(0.02, 0.01, 0.03), nll=(1.5, 1.25, 2.0), brier=(0.2, 0.1, 0.3)
        ),
    },
    differences={NETWORK: {**differences(-0.01), "brier": Interval(-0.01, -0.03, 0.01, 0.95, 1000)}},
    ece_floor={NETWORK: 0.0111, LATES: 0.0222},
    auc={NETWORK: 0.9333, LATES: 0.9444},
)


def test_every_number_stands_in_its_column_and_the_last_method_is_marked() -> None:
    assert measures_lines([PLAIN]).plain.splitlines() == [
        "                   accuracy          ECE  floor          NLL        Brier    AUC",
        "",
        "plain, 1,234 rows, 1,000 classes",
        "  network             .9000        .1000  .0111        12.35        .2500  .9333",
        "                .8000–1.000  .0500–.2000         9.876–15.00  .2000–.3000",
        "  LATES               .9100!       .0200* .0222        1.500*       .2000  .9444",
        "                .8100–1.000  .0100–.0300         1.250–2.000  .1000–.3000",
    ]


def test_a_long_name_is_cut_and_says_so() -> None:
    named = replace(
        PLAIN,
        measured={"a_layer_far_below": PLAIN.measured[LATES]},
        ece_floor={"a_layer_far_below": 0.0222},
        auc={"a_layer_far_below": 0.9444},
        differences={},
    )
    assert "  a_layer_far…        .9100        .0200  .0222" in measures_lines([named]).plain


def test_differences_of_rounding_are_no_differences() -> None:
    for value, verdict in ((-1e-7, "equal"), (-1e-5, "better"), (1e-5, "worse")):
        one = replace(PLAIN, differences={NETWORK: differences(value)})
        assert one.verdict(LATES, "nll") == verdict
        assert one.verdict(NETWORK, "nll") == "equal"


def test_the_explanation_counts_the_comparisons_of_all_sets() -> None:
    text = explanation([PLAIN] * 3)
    assert "* LATES better, ! worse than network by more than chance (paired); of" in text
    assert "12 comparisons chance alone would mark about 0.6." in text
    assert "comparisons" not in explanation([replace(PLAIN, differences={})])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, ".0000"), (0.01234, ".0123"), (-0.5, "-.5000"), (1.0, "1.000"), (9.8765, "9.877"), (10.0, "10.00")],
)
def test_numbers_take_five_characters(value: float, text: str) -> None:
    assert short(value) == text


def test_the_seed_draws_the_rows_and_the_floor() -> None:
    logits, labels = 3 * torch.randn(60, 4), torch.randint(4, (60,))
    predictions = Predictions(labels, {TEMPERATURE: logits}, {"head": logits.argmax(1) == labels})
    one = measure("few", predictions, seed=7)
    expected = lates.metrics.bootstrap(lates.metrics.nll, logits, labels, draws=one.draws, seed=7)
    assert vars(one.measured[TEMPERATURE]["nll"]) == pytest.approx(vars(expected), abs=1e-9)
    assert one.ece_floor[TEMPERATURE] == lates.metrics.ece_floor(logits, seed=7)


def test_the_draws_told_are_those_of_the_intervals() -> None:
    logits, labels = 2 * torch.eye(2).repeat(6250, 1), torch.arange(12_500) % 2
    one = measure("many", Predictions(labels, {NETWORK: logits}, {"head": labels < 2}), seed=0)
    assert one.draws == one.measured[NETWORK]["nll"].draws == 800
