"""Every sentence says the numbers that it is given, and fits the case. `known_page.txt` has what most say of plain findings."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from lates.report import LATES, NETWORK, TEMPERATURE, sentences
from lates.report.findings import Findings, Member
from tests.report.known import CLASSES, DIFFERENCES, FOG, KNOWN, MEMBERS, PLAIN, interval, stand_in


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
    assert plain(sentences.number(value, metric)) == text


def with_differences(baseline: str = TEMPERATURE, **differences: tuple[float, float]) -> Findings:
    """The known findings of one set, where these metrics' differences to the baseline have these intervals."""
    changed = {metric: interval((low + high) / 2, low, high) for metric, (low, high) in differences.items()}
    return replace(KNOWN, sets={"plain": replace(PLAIN, differences={LATES: {**DIFFERENCES, baseline: changed}})})


def with_members(*members: Member) -> Findings:
    return replace(KNOWN, members=members)


def with_shares(*shares: float, heads: int = 1) -> Findings:
    """The known members with other weights and contributions, the last `heads` of them heads."""
    members = [replace(one, weight=share, contribution=share) for one, share in zip(MEMBERS, shares, strict=True)]
    return with_members(*members[: 4 - heads], *(replace(one, name="head") for one in members[4 - heads :]))


*_, LATE, HEAD = MEMBERS
ALONE = "Alone, on the hold-out, the head has an accuracy of 79.0 %"
WORSE_THAN_NETWORK = {NETWORK: {"nll": interval(0.108, 0.1, 0.12)}, TEMPERATURE: {"nll": interval(-0.16, -0.2, -0.1)}}
SHIFTED = replace(FOG, differences={LATES: WORSE_THAN_NETWORK})
"""A loss against the network must not be hidden by a gain on a temperature scaling that the shift has ruined."""


@pytest.mark.parametrize(
    ("sentence", "findings", "text"),
    [
        (
            sentences.lead,
            KNOWN,
            "It is the mean gap between confidence and accuracy: lower is better; temperature scaling reaches 4.00 %. Even a "
            "perfectly calibrated model would measure about 3.03 % on this many inputs. Layer-stack temperature scaling "
            "(LATES) classifies 81.2 % of 2,000 test inputs correctly (95 % interval 80.1 to 82.3 %), the network alone "
            "80.0 %. Its log-loss, which rewards accuracy and calibration together, is 0.6500, against 0.7000 for "
            "temperature scaling: a significant improvement.",
        ),
        (sentences.lead, replace(KNOWN, sets={"plain": replace(PLAIN, rows=1)}), " of 1 test input correctly"),
        (sentences.lead, with_differences(nll=(0.1, 0.2)), "for temperature scaling: significantly worse."),
        (sentences.lead, with_differences(nll=(-0.1, 0.1)), "for temperature scaling: not a significant difference."),
        (
            sentences.comparison,
            with_differences(nll=(-0.1, 0.3), ece=(-0.1, 0.3)),
            "LATES is not clearly different in any metric, judged",
        ),
        (sentences.contributions, with_shares(0.6, 0.0, 0.4, 0.0), "60 %, is that of block “early”."),
        (
            sentences.contributions,
            with_shares(0.0, 0.0, 0.0, 1.0),
            "Only the head has weight: no probe improved the loss",
        ),
        (sentences.contributions, with_shares(0.0, 0.0, 0.0, 0.0), "All weights are 0: every class is equally likely."),
        (sentences.contributions, with_shares(0.1, 0.2, 0.3, 0.4, heads=4), "this is temperature scaling."),
        (
            sentences.depth,
            with_members(*MEMBERS, replace(LATE, name="worse", accuracy=0.3)),
            f"{ALONE}; the best probe, on block “late” and before the budget reduced any, one of 71.0 %.",
        ),
        (sentences.depth, with_members(HEAD), f"{ALONE}."),
        (
            sentences.classwise,
            replace(KNOWN, classes={method: scores[::-1] for method, scores in CLASSES.items()}),
            "Class “dog” has the largest calibration error, 2.50 percentage points: it is never predicted. The",
        ),
        (
            sentences.shifts,
            replace(KNOWN, sets={"plain": PLAIN, "fog": SHIFTED}),
            "On 1 shifted set, the log-loss of LATES is, compared with temperature scaling, better on 1; compared with "
            "the network alone, worse on 1.",
        ),
        (sentences.shifts, replace(KNOWN, sets={"plain": PLAIN, "fog": FOG, "rain": FOG}), "On 2 shifted sets, "),
        (
            sentences.warning,
            replace(KNOWN, calibrated=stand_in(changed=1)),
            "Caution: 1 tensor of this network differs",
        ),
        (
            sentences.warning,
            replace(KNOWN, calibrated=stand_in(changed=1234)),
            "Caution: 1,234 tensors of this network differ",
        ),
    ],
)
def test_sentence_fits_its_numbers(sentence: Callable[[Findings], str], findings: Findings, text: str) -> None:
    assert text in plain(sentence(findings))


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    assert sentences.warning(KNOWN) == ""
    assert sentences.depth(with_members(replace(HEAD, accuracy=None))) == ""


@pytest.mark.parametrize(
    ("low", "high", "text", "outcome"),
    [
        (-0.1, -0.08, "Calibration error down from 12.00 % to 3.15 %", "better"),
        (0.08, 0.1, "Calibration error up from 12.00 % to 3.15 %", "worse"),
        (-0.1, 0.1, "Calibration error 12.00 % before, 3.15 % after: not a significant difference", "unclear"),
    ],
)
def test_headline_gives_the_calibration_error_before_and_after(low: float, high: float, text: str, outcome: str) -> None:
    said, judged = sentences.headline(with_differences(NETWORK, ece=(low, high)))
    assert (plain(said), judged) == (text, outcome)
