"""Tests against hand-computed cases, scipy and statsmodels themselves, and laws that hold for any gains."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.anova import AnovaRM

from experiments.data.corruptions import LIKE_JITTER
from experiments.reporting.significance import (
    anova,
    bootstrap,
    compare,
    holm,
    mean_gains,
    network_gains,
    signed_rank,
    t_test,
)
from experiments.reporting.summaries import CORRUPTED, GROUPS, by_architecture, read_measured, with_common_seeds
from tests.experiments.reporting.synthetic import read_column, write_cell

gains_of_networks = st.lists(st.integers(-8, 8), min_size=1, max_size=7).map(lambda found: np.asarray(found) / 10)


# Wilcoxon


@settings(max_examples=30, deadline=None)
@given(gains_of_networks)
def test_p_is_the_share_of_sign_patterns_at_least_as_extreme(gains: np.ndarray) -> None:
    """The definition, by enumeration of all 2^n signs, ties and zeros included."""
    ranks = stats.rankdata(np.abs(gains))
    observed = abs(ranks @ np.sign(gains))
    patterns = np.asarray(list(itertools.product((-1, 1), repeat=len(gains)))) * (gains != 0)
    extreme = np.abs(patterns @ ranks) >= observed - 1e-9
    assert signed_rank(gains) == pytest.approx(min(1.0, extreme.mean()), abs=1e-9)


def test_signed_rank_of_no_pairs_is_missing_and_of_zeros_is_one() -> None:
    assert math.isnan(signed_rank(np.empty(0)))
    assert signed_rank(np.zeros(5)) == 1
    assert signed_rank(np.asarray([0.3 - 0.2, -(0.1 - 0.0), 0.1])) == 1, "equal gains tie although floats differ"


def test_holm_by_hand_leaves_missing_tests_out() -> None:
    """Sorted .01, .02, .04 of three tests: 3 x .01, 2 x .02, then not below the one before."""
    assert holm([0.04, math.nan, 0.01, 0.02]) == pytest.approx([0.04, math.nan, 0.03, 0.04], nan_ok=True)
    assert holm([math.nan]) == pytest.approx([math.nan], nan_ok=True)


# ANOVA


def test_anova_of_gains_is_that_of_the_scores_themselves() -> None:
    """Subjects' own levels, here far larger than the gains, must not matter."""
    gains = np.random.default_rng(0).normal(0.02, 0.03, (4, 6))
    level = np.linspace(1, 3, 6)
    values = np.stack([level, level + gains.mean(axis=0)], axis=1)
    rows = [{"value": v, "c": c, "m": m} for (c, m), v in np.ndenumerate(values)]
    oracle = AnovaRM(pd.DataFrame(rows), "value", "c", within=["m"]).fit().anova_table.loc["m", "F Value"]
    assert anova(gains)[0] == pytest.approx(oracle, rel=1e-6)


def test_anova_needs_something_to_compare() -> None:
    for gains in (np.empty((0, 19)), np.zeros((2, 19)), np.ones((2, 1))):
        assert np.isnan(anova(gains)).all()


# Effect sizes and intervals


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8).filter(lambda found: np.std(found) > 1e-6))
def test_t_test_is_scipys(values: list[float]) -> None:
    oracle = stats.ttest_1samp(values, 0)
    interval, p = t_test(np.asarray(values))
    assert p == pytest.approx(np.asarray(oracle)[1], abs=1e-9)
    assert (interval.low, interval.high) == pytest.approx(oracle.confidence_interval(0.95), abs=1e-9)


def test_bootstrap_deviation_is_the_crossed_designs() -> None:
    """For additive effects the variance of the redrawn mean is var(networks)/N + var(corruptions)/C, both over n."""
    random = np.random.default_rng(3)
    networks, corruptions = random.normal(0, 1, 12), random.normal(0, 2, 15)
    found = bootstrap(list((networks[:, None] + corruptions)[:, None]))
    deviation = math.sqrt(networks.var() / 12 + corruptions.var() / 15)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * deviation, rel=0.05)


def test_bootstrap_draws_architectures_first_and_counts_each_once() -> None:
    """Seeds that agree say no more than one of them: the spread is that of the architectures' own means."""
    levels = np.asarray([0.1, 0.4, 0.5, 0.9, 1.3])
    alone = bootstrap([np.full((1, 3), level) for level in levels])
    often = bootstrap([np.full((seeds, 3), level) for seeds, level in zip((5, 1, 3, 2, 4), levels, strict=True)])
    assert (often.low, often.high) == pytest.approx((alone.low, alone.high), abs=0.02)


def test_intervals_of_nothing_or_of_one_number_are_missing() -> None:
    interval, p = t_test(np.asarray([0.3]))
    assert math.isnan(interval.low)
    assert math.isnan(p)
    assert math.isnan(bootstrap([np.empty((0, 19))]).low)
    assert math.isnan(bootstrap([np.ones((1, 1))]).low)


# From files


def test_gains_come_from_the_files_with_positive_for_better(tmp_path: Path) -> None:
    path = write_cell(tmp_path, "in_distribution", "cifar100", "resnet18", 0)
    cells = read_measured(tmp_path)
    for metric, sign in (("nll", -1), ("accuracy", 1)):
        ours, theirs = (read_column(path, method, metric) for method in ("lates_none_1", "temperature"))
        gains = mean_gains(cells, "lates_none_1", "temperature", metric, [["clean"], ["fog-3", "snow-1"]])
        each = [sign * (ours[name] - theirs[name]) for name in ("clean", "fog-3", "snow-1")]
        assert gains == pytest.approx(np.asarray([[each[0], (each[1] + each[2]) / 2]]))
        expected = [sign * (ours[name] - theirs[name]) for name in ours if name != "clean"]
        found = network_gains(cells, "lates_none_1", "temperature", metric, CORRUPTED)
        assert found.tolist() == [pytest.approx(np.mean(expected))]
        clean = network_gains(cells, "lates_none_1", "temperature", metric, ["clean"])
        assert clean.tolist() == [pytest.approx(sign * (ours["clean"] - theirs["clean"]))]


def test_a_network_that_lacks_a_set_is_left_out_where_it_is_needed(tmp_path: Path) -> None:
    write_cell(tmp_path, "in_distribution", "cifar100", "resnet18", 0)
    like = [f"{name}-{severity}" for name in LIKE_JITTER for severity in range(1, 6)]
    write_cell(tmp_path, "in_distribution", "cifar100", "resnet18", 1, sets=["clean", *like])
    cells = read_measured(tmp_path)
    pair = ("lates_none_1", "temperature", "nll")
    assert len(network_gains(cells, *pair, CORRUPTED)) == 1
    assert len(network_gains(cells, *pair, like)) == 2
    assert mean_gains((), *pair, [like]).shape == (0, 1)


def test_a_gain_is_of_all_networks_even_if_some_kept_no_images(tmp_path: Path) -> None:
    for network in ("vgg16", "resnet18"):
        write_cell(tmp_path, "in_distribution", "cifar100", network, 0)
    whole = by_architecture(read_measured(tmp_path), "cifar100")
    blocks = {key: values for key, values in whole[0][0].blocks.items() if key[0] != "lates_none_1"}
    partly = [(replace(whole[0][0], blocks=blocks),), *whole[1:]]
    before, after = (compare(each, "lates_none_1", "temperature", "nll", GROUPS["clean"]) for each in (whole, partly))
    assert (after.mean, after.t, after.networks) == (before.mean, before.t, before.networks)
    assert after.bootstrap != before.bootstrap, "it is no longer one over images"


def test_equal_seeds_are_those_that_every_architecture_that_was_run_has(tmp_path: Path) -> None:
    for network, seeds in (("vgg16", (0, 1)), ("resnet18", (1, 2))):
        for seed in seeds:
            write_cell(tmp_path, "in_distribution", "cifar100", network, seed, sets=["clean"])
    found = with_common_seeds(by_architecture(read_measured(tmp_path), "cifar100"))
    assert [[each.cell.seed for each in cells] for cells in found if cells] == [[1], [1]]
    assert with_common_seeds([(), ()]) == [(), ()]
