"""What the numbers say, in plain words: the sentence above each chart, which is also what a screen reader hears."""

import math
from collections.abc import Sequence

from lates.metrics.intervals import Interval
from lates.report.numbers import Findings, Member, SetNumbers
from lates.report.predictions import LATES, NETWORK, TEMPERATURE

LABELS = {NETWORK: "Network", TEMPERATURE: "Temperature scaling", LATES: "LATES"}
INSIDE = {NETWORK: "the network alone", TEMPERATURE: "temperature scaling", LATES: "LATES"}
"""The same names in the middle of a sentence"""

METRIC_TITLES = {
    "accuracy": "Accuracy",
    "nll": "Log-loss",
    "ece": "Calibration error",
    "brier": "Brier score",
    "aurc": "Area under risk–coverage",
    "classwise_ece": "Classwise calibration error",
    "auc": "Area under ROC",
}
LOSSES = {"nll": "log-loss", "brier": "Brier score", "soft_ece": "soft calibration error"}
IN_PERCENT = ("accuracy", "ece", "classwise_ece", "aurc")
BETTER, WORSE, UNCLEAR = "better", "worse", "unclear"
HANDED_OVER = 0.2
ON_THE_TEST_SET, ON_THE_HOLDOUT = "on the test set", "on the hold-out"


def number(value: float, metric: str = "nll") -> str:
    """A metric's value as people read it: shares in percent, scores with four digits."""
    if not math.isfinite(value):
        return "not finite"
    if metric in IN_PERCENT:
        return percent(value, 1 if metric == "accuracy" else 2)
    return f"{value:.4f}"


def percent(value: float, digits: int = 1) -> str:
    """With a space that does not break."""
    return f"{100 * value:.{digits}f}\u00a0%"


def points(value: float) -> str:
    """A difference of shares, in percentage points."""
    return f"{abs(100 * value):.{2 if abs(value) < 0.1 else 1}f} percentage points"


def between(interval: Interval, metric: str) -> str:
    low, high = (number(edge, metric) for edge in (interval.low, interval.high))
    return f"{low.removesuffix(chr(0xA0) + '%')} to {high}"


def signed(value: float, metric: str) -> str:
    """A difference with its sign; shares without their unit, points."""
    text = f"{100 * value:+.2f}" if metric in IN_PERCENT else f"{value:+.4f}"
    return text.replace("-", "−")


def signed_range(interval: Interval, metric: str) -> str:
    return f"{signed(interval.low, metric)} to {signed(interval.high, metric)}"


def verdict(difference: Interval, metric: str) -> str:
    """Of a paired difference: better, worse, or unclear where zero is not excluded."""
    if not difference.excludes_zero:
        return UNCLEAR
    return BETTER if difference.favours(metric) else WORSE


def listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def lead(findings: Findings) -> str:
    """The whole report in three sentences."""
    test, main = findings.test, findings.main
    accuracy, ece = test.measured[main]["accuracy"], test.measured[main]["ece"]
    inputs = "input" if test.rows == 1 else "inputs"
    return (
        f"On {test.rows:,} test {inputs} {INSIDE[main]} is right in {number(accuracy.value, 'accuracy')} (95\u00a0% interval "
        f"{between(accuracy, 'accuracy')}), {INSIDE[NETWORK]} in "
        f"{number(test.measured[NETWORK]['accuracy'].value, 'accuracy')}. {log_loss_sentence(findings)} Its stated "
        f"confidence is off by {points(ece.value)} on average; a perfectly calibrated model would measure about "
        f"{100 * test.ece_floor[main]:.2f} on so many inputs."
    )


def warning(findings: Findings) -> str:
    """Above all else, where the page is about another network than the one that was calibrated; empty otherwise."""
    changed = findings.subject.changed_tensors
    if not changed:
        return ""
    tensors = "1 tensor of this network has" if changed == 1 else f"{changed:,} tensors of this network have"
    return (
        f"Caution: {tensors} other values than when it was calibrated: cast or trained on since. The page shows how the old "
        "calibration does on it; calibrate again."
    )


def log_loss_sentence(findings: Findings) -> str:
    test, main = findings.test, findings.main
    rival = findings.methods[-2]
    difference = test.differences[rival]["nll"]
    outcome = {
        BETTER: "an improvement beyond chance",
        WORSE: "a loss beyond chance",
        UNCLEAR: "no difference beyond chance",
    }[verdict(difference, "nll")]
    return (
        f"Its log-loss, which rewards honest probabilities, is {number(test.measured[main]['nll'].value)} against "
        f"{number(test.measured[rival]['nll'].value)} for {INSIDE[rival]}: {outcome}."
    )


def comparison(findings: Findings) -> str:
    """Which metrics the main method improves or worsens against its rival."""
    rival = findings.methods[-2]
    verdicts = {metric: verdict(found, metric) for metric, found in findings.test.differences[rival].items()}
    parts = []
    for outcome in (BETTER, WORSE):
        names = [inside_name(metric) for metric, found in verdicts.items() if found == outcome]
        if names:
            parts.append(f"{outcome} in {listed(names)}")
    found = " and ".join(parts) if parts else "not clearly different in any metric"
    return (
        f"Against {INSIDE[rival]}, {INSIDE[findings.main]} is {found}, judged by the 95\u00a0% interval of the paired "
        f"difference ({findings.test.draws:,} bootstrap draws of these inputs)."
    )


def inside_name(metric: str) -> str:
    """A metric's name in the middle of a sentence; Brier keeps his capital."""
    title = METRIC_TITLES[metric]
    return title if title.startswith("Brier") else title[0].lower() + title[1:]


def metric_alt(test: SetNumbers, metric: str) -> str:
    values = [
        f"{LABELS[method]} {number(own[metric].value, metric)} ({between(own[metric], metric)})"
        for method, own in test.measured.items()
    ]
    return f"{METRIC_TITLES[metric]} with 95\u00a0% intervals: {'; '.join(values)}."


def votes(findings: Findings) -> str:
    subject, members = findings.subject, findings.members
    probes = sum(member.contribution for member in members if not member.is_head)
    if subject.members == subject.networks:
        return "Only the head was given a weight: this is temperature scaling."
    if not any(member.contribution for member in members):
        return "No member votes: all weights are 0, and every class is equally likely."
    if not probes:
        return "The head votes alone: no probe improved the hold-out's loss."
    heads = sum(member.contribution for member in members if member.is_head)
    head = f"has {share(heads)} of the weight" if heads else "has no vote"
    strongest = max((member for member in members if not member.is_head), key=lambda member: member.contribution)
    return (
        f"{subject.voting} of {subject.members} members vote. The head {head}; the probes on earlier blocks have "
        f"{share(probes)}; the strongest of them, on {full_name(strongest, findings)}, has "
        f"{share(strongest.contribution)}."
    )


def share(value: float) -> str:
    return percent(value, 0 if value >= 0.095 or not value else 1)


def full_name(member: Member, findings: Findings) -> str:
    name = f"block “{member.name}”"
    return f"{name} of network {member.network + 1}" if findings.subject.networks > 1 else name


def depth(findings: Findings) -> str:
    known = [(member, member.accuracy) for member in findings.members if member.accuracy and not member.is_head]
    main = findings.test.measured[findings.main]["accuracy"]
    heads = [member.accuracy for member in findings.members if member.is_head and member.accuracy]
    head = f"the head alone is right in {listed([number(own.value, 'accuracy') for own in heads])}"
    if not known:
        return f"No probe votes; {head}.{silent(findings)}"
    best, accuracy = max(known, key=lambda pair: pair[1].value)
    return (
        f"The best probe that votes, on {full_name(best, findings)}, is right in {number(accuracy.value, 'accuracy')} by "
        f"itself; {head}, all together in {number(main.value, 'accuracy')}.{silent(findings)}"
    )


def silent(findings: Findings) -> str:
    """On the probes without a vote: measured when they were trained, for they are not kept."""
    silent = [member for member in findings.members if member.accuracy is None]
    measured = [(own, own.holdout_accuracy) for own in silent if own.holdout_accuracy is not None]
    if not silent:
        return ""
    if not measured:
        return " Probes without a vote are not kept."
    best, accuracy = max(measured, key=lambda pair: pair[1])
    return (
        f" Probes without a vote are not kept: hollow dots say how often they were right {ON_THE_HOLDOUT}, whole, before "
        f"the budget cut any; the best of them, on {full_name(best, findings)}, in {number(accuracy, 'accuracy')}."
    )


def reliability(findings: Findings, method: str) -> str:
    test = findings.test.measured[method]
    bins = findings.bins[method]
    gap = sum(one.count * one.confidence - one.right for one in bins if one.count) / findings.test.rows
    direction = "too sure" if gap > 0 else "not sure enough"
    return (
        f"{LABELS[method]}: calibration error {number(test['ece'].value, 'ece')} (95\u00a0% interval "
        f"{between(test['ece'], 'ece')}; {number(findings.test.ece_floor[method], 'ece')} expected by chance "
        f"alone); on the whole {direction} by {points(gap)}."
    )


def panel(findings: Findings, method: str) -> str:
    """Below a method's diagram and histogram, whose heading names it already."""
    sentences = (reliability(findings, method), histogram(findings, method))
    told = (text.removeprefix(f"{LABELS[method]}: ") for text in sentences)
    return " ".join(text[0].upper() + text[1:] for text in told)


def honesty(findings: Findings) -> str:
    parts = [
        f"{100 * findings.test.measured[method]['ece'].value:.2f} ({INSIDE[method]})" for method in findings.methods
    ]
    return (
        f"Of the inputs on which a model is {percent(0.8, 0)} sure, {percent(0.8, 0)} should be right: dots on the diagonal. "
        f"Stated confidence and accuracy differ by {listed(parts)} percentage points, on average over all inputs."
    )


def histogram(findings: Findings, method: str) -> str:
    bins, rows = findings.bins[method], findings.test.rows
    top = bins[-1]
    return (
        f"{LABELS[method]}: {share(top.count / rows)} of the inputs get a confidence above {percent(top.low, 0)}; of those "
        f"{top.count - top.right:,} of {top.count:,} are wrong."
    )


def risk_at(curve: Sequence[tuple[float, float]], coverage: float) -> float:
    """The error rate at the point of the curve nearest to that share of inputs answered."""
    return min(curve, key=lambda point: abs(point[0] - coverage))[1]


def handing_over(findings: Findings) -> str:
    parts = []
    for method in findings.methods:
        risk = risk_at(findings.coverage[method], 1 - HANDED_OVER)
        parts.append(f"{percent(risk)} ({INSIDE[method]})")
    everything = findings.coverage[findings.main][-1][1]
    return (
        f"Hand the least sure {share(HANDED_OVER)} of the inputs to somebody else, and the error rate on the rest is "
        f"{listed(parts)}; on all inputs {INSIDE[findings.main]} errs in {percent(everything)}."
    )


def classwise(findings: Findings) -> str:
    worst, main = findings.classes[0], findings.main
    if math.isnan(worst.confidence[main]):
        told = "it is never the answer"
    else:
        told = (
            f"where it is the answer, {INSIDE[main]} is {percent(worst.confidence[main])} sure on average and right in "
            f"{percent(worst.precision[main])}"
        )
    return (
        f"The probabilities of class “{worst.name}” are furthest off, by {points(worst.error[main])}: {told}. Averaged over "
        f"classes the error is {100 * findings.points['classwise_ece'][main]:.2f} points, against "
        f"{100 * findings.points['classwise_ece'][findings.methods[-2]]:.2f} for {INSIDE[findings.methods[-2]]}."
    )


def shifts(findings: Findings) -> str:
    """Against the rival and against the network as it was: a shift can make the rival so poor that beating it says little."""
    shifted = findings.sets[1:]
    counts = []
    for rival in reversed(findings.methods[:-1]):
        verdicts = [verdict(one.differences[rival]["nll"], "nll") for one in shifted]
        better, worse, unclear = (verdicts.count(outcome) for outcome in (BETTER, WORSE, UNCLEAR))
        counts.append(
            f"against {INSIDE[rival]}, clearly better on {better}, clearly worse on {worse} and not clearly different "
            f"on {unclear}"
        )
    return (
        f"On {len(shifted)} shifted {'set' if len(shifted) == 1 else 'sets'} the log-loss of {INSIDE[findings.main]} is, "
        f"{'; '.join(counts)}."
    )
