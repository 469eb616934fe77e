"""Every sentence says the numbers that it is given, and fits the case."""

import math
from dataclasses import replace

import pytest

from lates.report import LATES, NETWORK, TEMPERATURE, formats, words
from lates.report.numbers import Findings, Member
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
    assert plain(formats.number(value, metric)) == text


def test_lead_explains_the_calibration_error_and_gives_accuracy_and_log_loss() -> None:
    assert plain(words.lead(KNOWN)) == (
        "It is the mean gap between confidence and accuracy: lower is better; temperature scaling reaches 4.00 %. Even a "
        "perfectly calibrated model would measure about 3.03 % on this many inputs. Layer-stack temperature scaling (LATES) "
        "classifies 81.2 % of 2,000 test inputs correctly (95 % interval 80.1 to 82.3 %), the network alone 80.0 %. Its "
        "log-loss, which rewards accuracy and calibration together, is 0.6500, against 0.7000 for temperature scaling: a "
        "significant improvement."
    )
    few = replace(KNOWN, sets={"plain": replace(PLAIN, rows=1)})
    assert " of 1 test input correctly" in words.lead(few)


def with_differences(**differences: tuple[float, float]) -> Findings:
    """The known findings, where these metrics' differences to temperature scaling have these intervals."""
    changed = {metric: interval((low + high) / 2, low, high) for metric, (low, high) in differences.items()}
    return replace(KNOWN, sets={"plain": replace(PLAIN, differences={LATES: {**DIFFERENCES, TEMPERATURE: changed}})})


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (-0.2, -0.1, "a significant improvement"),
        (0.1, 0.2, "significantly worse"),
        (-0.1, 0.1, "not a significant difference"),
    ],
)
def test_lead_judges_the_log_loss_against_the_baseline(low: float, high: float, outcome: str) -> None:
    assert f"for temperature scaling: {outcome}." in words.lead(with_differences(nll=(low, high)))


@pytest.mark.parametrize(
    ("low", "high", "text", "outcome"),
    [
        (-0.1, -0.08, "Calibration error down from 12.00 % to 3.15 %", "better"),
        (0.08, 0.1, "Calibration error up from 12.00 % to 3.15 %", "worse"),
        (-0.1, 0.1, "Calibration error 12.00 % before, 3.15 % after: not a significant difference", "unclear"),
    ],
)
def test_headline_gives_the_calibration_error_before_and_after(
    low: float, high: float, text: str, outcome: str
) -> None:
    changed = {NETWORK: {"ece": interval((low + high) / 2, low, high)}}
    said, judged = words.headline(replace(KNOWN, sets={"plain": replace(PLAIN, differences={LATES: changed})}))
    assert (plain(said), judged) == (text, outcome)


@pytest.mark.parametrize(
    ("changed", "beginning"),
    [
        (0, ""),
        (1, "Caution: 1 tensor of this network differs"),
        (1234, "Caution: 1,234 tensors of this network differ"),
    ],
)
def test_warning_counts_the_tensors_that_changed(changed: int, beginning: str) -> None:
    text = words.warning(replace(KNOWN, subject=replace(SUBJECT, changed_tensors=changed)))
    assert text.startswith(beginning)
    assert bool(text) == bool(changed)


def test_comparison_names_the_metrics_that_are_better_or_worse() -> None:
    assert plain(words.comparison(KNOWN)) == (
        "Compared with temperature scaling, LATES is better in accuracy and log-loss and worse in Brier score, judged by the "
        "95 % interval of the paired difference (1,000 bootstrap draws of the test inputs)."
    )
    same = with_differences(nll=(-0.1, 0.3), ece=(-0.1, 0.3))
    assert "LATES is not clearly different in any metric, judged" in words.comparison(same)


def contributing(*shares: float, heads: int = 1) -> tuple[Member, ...]:
    """The known members with other weights and contributions, the last `heads` of them heads."""
    members = tuple(replace(one, weight=own, contribution=own) for one, own in zip(MEMBERS, shares, strict=True))
    return tuple(replace(one, name="head") if place >= 4 - heads else one for place, one in enumerate(members))


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            contributing(0.04, 0.0, 0.36, 0.6),
            "3 of 4 members have weight. The head contributes 60 %, the probes on earlier blocks 40 %; the largest "
            "contribution among them, 36 %, is that of block “late”.",
        ),
        (
            contributing(0.6, 0.0, 0.4, 0.0),
            "2 of 4 members have weight. The head contributes 0 %, the probes on earlier blocks 100 %; the largest "
            "contribution among them, 60 %, is that of block “early”.",
        ),
        (contributing(0.0, 0.0, 0.0, 1.0), "Only the head has weight: no probe improved the loss on the hold-out."),
        (contributing(0.0, 0.0, 0.0, 0.0), "All weights are 0: every class is equally likely."),
        (
            contributing(0.1, 0.2, 0.3, 0.4, heads=4),
            "Only the head was given a weight: this is temperature scaling.",
        ),
    ],
)
def test_contributions_fit_the_weights(members: tuple[Member, ...], text: str) -> None:
    assert plain(words.contributions(replace(KNOWN, members=members))) == text


ALONE = "The head alone has an accuracy of 80.0 %"
WORSE = replace(MEMBERS[1], name="worse", holdout_accuracy=0.3)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            (*MEMBERS, WORSE),
            f"{ALONE}, the best probe with weight, on block “late”, 70.0 %, all members together 81.2 %. Probes of weight 0 "
            "are not kept; hollow dots show their accuracy on the hold-out as trained, before the budget reduced any. The "
            "best of them, on block “silent”, had 55.0 %.",
        ),
        (
            (MEMBERS[0], MEMBERS[3]),
            f"{ALONE}, the best probe with weight, on block “early”, 40.0 %, all members together 81.2 %.",
        ),
        ((MEMBERS[3],), f"{ALONE}."),
        (
            (replace(MEMBERS[1], holdout_accuracy=None), MEMBERS[3]),
            f"{ALONE}. Probes of weight 0 are not kept.",
        ),
    ],
)
def test_depth_gives_the_best_members_alone(members: tuple[Member, ...], text: str) -> None:
    assert plain(words.depth(replace(KNOWN, members=members))) == text


def test_a_probe_that_is_seldom_right_but_votes_is_explained() -> None:
    early, silent, late, head = MEMBERS
    known = words.seldom_right(replace(KNOWN, members=(replace(early, right_where_head_errs=0.25), silent, late, head)))
    assert plain(known).startswith("Why does the probe on block “early” vote, if it is right on only 40.0 %?")
    assert "of the inputs that the head gets wrong, this probe gets 25 % right." in plain(known)
    assert "gets wrong" not in words.seldom_right(KNOWN)
    assert words.seldom_right(replace(KNOWN, members=(replace(early, weight=0.0), silent, head))) == ""
    similar = replace(late, accuracy=interval(0.79, 0.77, 0.81))
    assert words.seldom_right(replace(KNOWN, members=(similar, head))) == ""


def test_reliability_and_histogram_give_size_and_direction_of_the_error() -> None:
    assert plain(words.reliability(KNOWN, NETWORK)) == (
        "Calibration error 12.00 % (95 % interval 10.90 to 13.10 %; 1.01 % expected by chance alone). Overall overconfident "
        "by 12.0 percentage points."
    )
    assert words.reliability(KNOWN, TEMPERATURE).endswith("Overall underconfident by 1.00 percentage points.")
    assert plain(words.histogram(KNOWN, NETWORK)) == (
        "100 % of the inputs have a confidence above 50 %; of those 400 of 2,000 are wrong."
    )


def test_calibration_and_deferral_compare_all_methods() -> None:
    assert plain(words.calibration(KNOWN)).endswith(
        "On average over all inputs, confidence and accuracy differ by 12.00 (the network alone), 4.00 (temperature scaling) "
        "and 3.15 (LATES) percentage points: lower is better."
    )
    assert plain(words.deferral(KNOWN)) == (
        "Without the 20 % of inputs with the lowest confidence, the error rate is 16.0 % (the network alone), 16.0 % "
        "(temperature scaling) and 15.0 % (LATES); on all inputs that of LATES is 18.8 %."
    )


def test_classwise_describes_the_worst_class() -> None:
    assert plain(words.classwise(KNOWN)) == (
        "Class “cat” has the largest calibration error, 12.5 percentage points: where LATES predicts it, the mean confidence "
        "is 71.0 % and 53.0 % of these predictions are correct. The mean over classes is 7.50 points, against 10.00 for "
        "temperature scaling."
    )
    never = words.classwise(replace(KNOWN, classes=CLASSES[::-1]))
    assert "Class “dog” has the largest calibration error, 2.50 percentage points: it is never predicted. The" in never


def test_shifts_count_verdicts_against_both_baselines_without_the_plain_set() -> None:
    """A loss against the network must not be hidden by a gain on a temperature scaling that the shift has ruined."""
    differences = {NETWORK: {"nll": interval(0.108, 0.1, 0.12)}, TEMPERATURE: {"nll": interval(-0.16, -0.2, -0.1)}}
    odd = replace(FOG, differences={LATES: differences})
    assert words.shifts(replace(KNOWN, sets={"plain": PLAIN, "fog": odd})) == (
        "On 1 shifted set, the log-loss of LATES is, compared with temperature scaling, better on 1, worse on 0 and not "
        "clearly different on 0; compared with the network alone, better on 0, worse on 1 and not clearly different on 0."
    )
    assert words.shifts(replace(KNOWN, sets={"plain": PLAIN, "fog": FOG, "rain": FOG})).startswith(
        "On 2 shifted sets, "
    )
