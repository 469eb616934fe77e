"""Every sentence says the numbers that it is given, and fits the case."""

import math
from dataclasses import replace

import pytest

from lates.report import words
from lates.report.numbers import Member
from lates.report.predictions import NETWORK, TEMPERATURE
from tests.report.known import CLASSES, DIFFERENCES, FOG, KNOWN, MEMBERS, PLAIN, SUBJECT, interval


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [
        (0.8125, "accuracy", "81.2 %"),
        (0.0315, "ece", "3.15 %"),
        (0.0315, "classwise_ece", "3.15 %"),
        (0.0315, "aurc", "3.15 %"),
        (0.65, "nll", "0.6500"),
        (0.275, "brier", "0.2750"),
        (0.9333, "auc", "0.9333"),
        (math.inf, "nll", "not finite"),
        (math.nan, "accuracy", "not finite"),
    ],
)
def test_shares_are_in_percent_and_scores_have_four_digits(value: float, metric: str, text: str) -> None:
    assert plain(words.number(value, metric)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0315, "3.15 percentage points"), (-0.0315, "3.15 percentage points"), (0.125, "12.5 percentage points")],
)
def test_points_have_no_sign_and_large_ones_fewer_digits(value: float, text: str) -> None:
    assert words.points(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.6, "60 %"), (0.095, "10 %"), (0.04, "4.0 %"), (0.0, "0 %")])
def test_small_shares_have_a_digit_more(value: float, text: str) -> None:
    assert plain(words.share(value)) == text


def test_intervals_name_their_unit_once_and_differences_their_sign() -> None:
    assert plain(words.between(interval(0.5, 0.4, 0.6), "accuracy")) == "40.0 to 60.0 %"
    assert words.between(interval(0.5, 0.4, 0.6), "nll") == "0.4000 to 0.6000"
    assert words.signed_range(interval(0.0, -0.01, 0.02), "ece") == "−1.00 to +2.00"
    assert words.signed(-0.25, "nll") == "−0.2500"


def test_the_lead() -> None:
    assert plain(words.lead(KNOWN)) == (
        "On 2,000 test inputs LATES is right in 81.2 % (95 % interval 80.1 to 82.3 %), the network alone in 80.0 %. Its "
        "log-loss, which rewards honest probabilities, is 0.6500 against 0.7000 for temperature scaling: an improvement "
        "beyond chance. Its stated confidence is off by 3.15 percentage points on average; a perfectly calibrated model "
        "would measure about 3.03 on so many inputs."
    )
    for rows, inputs in ((1, "1 test input"), (2, "2 test inputs")):
        few = replace(KNOWN, sets=(replace(PLAIN, rows=rows),))
        assert words.lead(few).startswith(f"On {inputs} LATES is right")


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (-0.2, -0.1, "an improvement beyond chance"),
        (0.1, 0.2, "a loss beyond chance"),
        (-0.1, 0.1, "no difference beyond chance"),
    ],
)
def test_the_log_loss_is_judged_against_the_rival(low: float, high: float, outcome: str) -> None:
    differences = {**DIFFERENCES, TEMPERATURE: {"nll": interval((low + high) / 2, low, high)}}
    found = replace(KNOWN, sets=(replace(PLAIN, differences=differences),))
    assert words.log_loss_sentence(found).endswith(f"for temperature scaling: {outcome}.")


@pytest.mark.parametrize(
    ("changed", "beginning"),
    [(0, ""), (1, "Caution: 1 tensor of this network has"), (1234, "Caution: 1,234 tensors of this network have")],
)
def test_a_network_that_changed_is_cautioned_of(changed: int, beginning: str) -> None:
    text = words.warning(replace(KNOWN, subject=replace(SUBJECT, changed_tensors=changed)))
    assert text.startswith(beginning)
    assert bool(text) == bool(changed)


def test_the_comparison_names_what_is_better_and_what_is_worse() -> None:
    assert plain(words.comparison(KNOWN)) == (
        "Against temperature scaling, LATES is better in accuracy and log-loss and worse in Brier score, judged by the "
        "95 % interval of the paired difference (1,000 bootstrap draws of these inputs)."
    )
    unclear = dict.fromkeys(DIFFERENCES[TEMPERATURE], interval(0.1, -0.1, 0.3))
    same = replace(KNOWN, sets=(replace(PLAIN, differences={**DIFFERENCES, TEMPERATURE: unclear}),))
    assert "LATES is not clearly different in any metric, judged" in words.comparison(same)
    assert words.listed(["accuracy", "log-loss", "Brier score"]) == "accuracy, log-loss and Brier score"


def test_a_metric_s_chart_reads_out_every_method() -> None:
    assert plain(words.metric_alt(PLAIN, "ece")) == (
        "Calibration error with 95 % intervals: Network 12.00 % (10.90 to 13.10 %); Temperature scaling 4.00 % (2.90 to "
        "5.10 %); LATES 3.15 % (2.05 to 4.25 %)."
    )


def voting(*shares: float, networks: int = 1) -> tuple[Member, ...]:
    """The known members with other contributions, the last `networks` of them heads."""
    members = tuple(replace(one, contribution=own) for one, own in zip(MEMBERS, shares, strict=True))
    return tuple(replace(one, name="head") if place >= 4 - networks else one for place, one in enumerate(members))


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        (
            (0.04, 0.0, 0.36, 0.6),
            "3 of 4 members vote. The head has 60 % of the weight; the probes on earlier blocks have 40 %; the strongest "
            "of them, on block “late”, has 36 %.",
        ),
        (
            (0.6, 0.0, 0.4, 0.0),
            "3 of 4 members vote. The head has no vote; the probes on earlier blocks have 100 %; the strongest of them, "
            "on block “early”, has 60 %.",
        ),
        ((0.0, 0.0, 0.0, 1.0), "The head votes alone: no probe improved the hold-out's loss."),
        ((0.0, 0.0, 0.0, 0.0), "No member votes: all weights are 0, and every class is equally likely."),
    ],
)
def test_the_votes(shares: tuple[float, ...], text: str) -> None:
    assert plain(words.votes(replace(KNOWN, members=voting(*shares)))) == text


def test_heads_alone_are_temperature_scaling_however_many_networks_there_are() -> None:
    heads = replace(SUBJECT, members=4, networks=4)
    found = replace(KNOWN, members=voting(0.1, 0.2, 0.3, 0.4, networks=4), subject=heads)
    assert words.votes(found) == "Only the head was given a weight: this is temperature scaling."


def test_members_of_an_ensemble_are_named_with_their_network() -> None:
    found = replace(KNOWN, subject=replace(SUBJECT, networks=2))
    assert words.full_name(MEMBERS[2], found) == "block “late” of network 1"


@pytest.mark.parametrize(
    ("kept", "text"),
    [
        (
            (0, 1, 2, 3),
            "The best probe that votes, on block “late”, is right in 70.0 % by itself; the head alone is right in 80.0 %, "
            "all together in 81.2 %. Probes without a vote are not kept: hollow dots say how often they were right on the "
            "hold-out, whole, before the budget cut any; the best of them, on block “silent”, in 55.0 %.",
        ),
        (
            (0, 3),
            "The best probe that votes, on block “early”, is right in 40.0 % by itself; the head alone is right in 80.0 %, "
            "all together in 81.2 %.",
        ),
        ((3,), "No probe votes; the head alone is right in 80.0 %."),
    ],
)
def test_what_members_know_by_themselves(kept: tuple[int, ...], text: str) -> None:
    assert plain(words.depth(replace(KNOWN, members=tuple(MEMBERS[place] for place in kept)))) == text


def test_the_best_of_the_silent_is_named_where_it_was_measured() -> None:
    worse = replace(MEMBERS[1], name="worse", holdout_accuracy=0.3)
    text = words.depth(replace(KNOWN, members=(*MEMBERS, worse)))
    assert plain(text).endswith("the best of them, on block “silent”, in 55.0 %.")
    unknown = tuple(replace(one, holdout_accuracy=None) for one in MEMBERS)
    assert words.depth(replace(KNOWN, members=unknown)).endswith(" Probes without a vote are not kept.")


def test_a_panel_says_how_far_off_and_which_way() -> None:
    assert plain(words.panel(KNOWN, NETWORK)) == (
        "Calibration error 12.00 % (95 % interval 10.90 to 13.10 %; 1.01 % expected by chance alone); on the whole too sure "
        "by 12.0 percentage points. 100 % of the inputs get a confidence above 50 %; of those 400 of 2,000 are wrong."
    )
    assert "on the whole not sure enough by 1.00 percentage points." in words.panel(KNOWN, TEMPERATURE)


def test_honesty_and_handing_over_compare_all_methods() -> None:
    assert plain(words.honesty(KNOWN)).endswith(
        "Stated confidence and accuracy differ by 12.00 (the network alone), 4.00 (temperature scaling) and 3.15 (LATES) "
        "percentage points, on average over all inputs."
    )
    assert plain(words.handing_over(KNOWN)) == (
        "Hand the least sure 20 % of the inputs to somebody else, and the error rate on the rest is 16.0 % (the network "
        "alone), 16.0 % (temperature scaling) and 15.0 % (LATES); on all inputs LATES errs in 18.8 %."
    )


def test_the_worst_class() -> None:
    assert plain(words.classwise(KNOWN)) == (
        "The probabilities of class “cat” are furthest off, by 12.5 percentage points: where it is the answer, LATES is "
        "71.0 % sure on average and right in 53.0 %. Averaged over classes the error is 7.50 points, against 10.00 for "
        "temperature scaling."
    )
    never = words.classwise(replace(KNOWN, classes=CLASSES[::-1]))
    assert "class “dog” are furthest off, by 2.50 percentage points: it is never the answer. Averaged" in never


def test_shifted_sets_are_counted_without_the_plain_one() -> None:
    assert words.shifts(KNOWN) == (
        "On 1 shifted set the log-loss of LATES is, against temperature scaling, clearly better on 1, clearly worse on 0 "
        "and not clearly different on 0; against the network alone, clearly better on 1, clearly worse on 0 and not clearly "
        "different on 0."
    )
    assert words.shifts(replace(KNOWN, sets=(PLAIN, FOG, FOG))).startswith("On 2 shifted sets the log-loss of LATES is")
