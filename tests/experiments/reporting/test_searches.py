"""The default views are those that the rule chooses from the committed results."""

from pathlib import Path

import lates
from experiments.data.shifts import FAMILIES
from experiments.reporting.tables.searches import read_search, round_tables
from lates.settings import SHIFT_EXPECTED

RESULTS = Path(__file__).parents[3] / "results"
SEARCH = read_search(RESULTS / "search_shift")


def test_the_default_is_what_the_rule_chooses_whichever_family_is_left_out() -> None:
    assert {SEARCH.choose(without=family) for family in (None, *FAMILIES)} == {lates.DEFAULT.views}


def test_the_second_round_names_a_default_and_a_setting_for_expected_shift() -> None:
    search = read_search(RESULTS / "search_shift_public")
    assert (search.choose(), search.choose_for_shift()) == ("robust, to Brier", "robust, rescaled")
    lower, error = search.worse("robust, to Brier", "robust, rescaled", "shifted", "ece")
    assert lower > 2 * error


def test_the_library_does_what_the_third_round_names() -> None:
    search = read_search(RESULTS / "search_third")
    assert (search.choose(), search.choose_for_shift()) == ("robust, last", "robust, capped, rescaled")
    assert (lates.DEFAULT.last_block, lates.DEFAULT.cap) == (True, None)
    assert SHIFT_EXPECTED == {"last_block": False, "cap": 0.99}
    candidates, pairs, families = round_tables(RESULTS / "search_third")
    assert candidates.rows[:2] == (
        ("temperature", "0", *candidates.rows[0][2:]),
        ("robust, last", "11", *candidates.rows[1][2:]),
    )
    assert candidates.note.endswith(
        "robust, last; without vignette robust, last, capped. For expected shift: robust, capped, rescaled."
    )
    (cells,) = (row[1:] for row in pairs.rows if row[0] == "robust, last − robust")
    (cells_of_mean,) = (row[1:] for row in families.rows if row[0] == "robust, last")
    assert cells_of_mean[2 * list(FAMILIES).index("lines")] == f"{search.value('robust, last', 'lines', 'nll'):.3f}"
    errors = search.worse("robust, last", "robust", "shifted", "nll")
    assert cells[3] == f"{errors[0]:+.4f} ± {errors[1]:.4f}"


def test_violations_count_against_a_candidate_before_its_clean_loss() -> None:
    assert SEARCH.choose(["shift", "robust"]) == "robust"
    assert SEARCH.value("shift", "clean", "nll") < SEARCH.value("robust", "clean", "nll")
    assert SEARCH.violations("robust") == 10
    assert SEARCH.violations("temperature") == 0
