"""What the numbers mean: the sentence above each chart, which is also its alternative text.

At the end stands how names and numbers are written.
"""

import math
from collections.abc import Sequence

from lates.metrics import METRICS, Comparison, Interval, Verdict, verdict
from lates.report.findings import Findings, Member
from lates.report.predictions import LATES, NETWORK, TEMPERATURE

LABELS = {NETWORK: "Network", TEMPERATURE: "Temperature scaling", LATES: "LATES"}
INSIDE = {NETWORK: "the network alone", TEMPERATURE: "temperature scaling", LATES: "LATES"}
"""The same names in the middle of a sentence"""
EXPLAINED = {
    NETWORK: "before calibration",
    TEMPERATURE: "all logits divided by one number",
    LATES: "layer-stack temperature scaling",
}

TITLES = {
    "accuracy": "Accuracy",
    "nll": "Log-loss",
    "ece": "Calibration error",
    "brier": "Brier score",
    "aurc": "Area under risk–coverage",
    "classwise_ece": "Classwise calibration error",
    "auc": "Area under ROC",
}
IN_PERCENT = ("accuracy", "ece", "classwise_ece", "aurc")

OUTCOMES = {
    "better": "a significant improvement",
    "worse": "significantly worse",
    "unclear": "not a significant difference",
}
DEFERRED = 0.2
MAIN_RISK = 0.05


def headline(findings: Findings) -> tuple[str, Verdict]:
    """What the page is opened for: the calibration error before and after, and which of them is better."""
    test, main = findings.test, findings.main
    before, after = (number(test.measured[method]["ece"].value, "ece") for method in (NETWORK, main))
    outcome = verdict(test.differences[main][NETWORK]["ece"], "ece")
    if outcome == "unclear":
        return f"Calibration error {before} before, {after} after: {OUTCOMES[outcome]}", outcome
    return f"Calibration error {'down' if outcome == 'better' else 'up'} from {before} to {after}", outcome


def lead(findings: Findings) -> str:
    """The rest of the report in four sentences."""
    test, main, baseline = findings.test, findings.main, findings.baseline
    accuracy, floor = test.measured[main]["accuracy"], number(test.ece_floor[main], "ece")
    name = f"{EXPLAINED[main].capitalize()} ({LABELS[main]})" if main == LATES else LABELS[main]
    log_losses = [number(test.measured[method]["nll"].value) for method in (main, baseline)]
    rival = f"; {INSIDE[baseline]} reaches {number(test.measured[baseline]['ece'].value, 'ece')}" if main == LATES else ""
    return (
        f"It is the mean gap between confidence and accuracy: lower is better{rival}. Even a perfectly calibrated model would "
        f"measure about {floor} on this many inputs. {name} classifies {number(accuracy.value, 'accuracy')} of {test.rows:,} "
        f"test {'input' if test.rows == 1 else 'inputs'} correctly (95\u00a0% interval {between(accuracy, 'accuracy')}), "
        f"{INSIDE[NETWORK]} {number(test.measured[NETWORK]['accuracy'].value, 'accuracy')}. Its log-loss, which rewards "
        f"accuracy and calibration together, is {log_losses[0]}, against {log_losses[1]} for {INSIDE[baseline]}: "
        f"{OUTCOMES[verdict(test.differences[main][baseline]['nll'], 'nll')]}."
    )


def warning(findings: Findings) -> str:
    """For the top of the page, where the network is not the one that was calibrated; empty otherwise."""
    changed = sum(len(network.network_as_calibrated()[1]) for network in findings.calibrated.networks)
    if not changed:
        return ""
    tensors = "1 tensor of this network differs" if changed == 1 else f"{changed:,} tensors of this network differ"
    return (
        f"Caution: {tensors} from the calibrated one: it was cast or trained further. The page shows how the old "
        "calibration performs on it; calibrate again."
    )


def comparison(findings: Findings) -> str:
    """Which metrics the main method improves or worsens against the baseline."""
    main, baseline = findings.main, findings.baseline
    verdicts = {metric: verdict(one, metric) for metric, one in findings.test.differences[main][baseline].items()}
    parts = []
    for outcome in ("better", "worse"):
        names = [inside_name(metric) for metric, one in verdicts.items() if one == outcome]
        if names:
            parts.append(f"{outcome} in {listed(names)}")
    result = " and ".join(parts) if parts else "not clearly different in any metric"
    return (
        f"Compared with {INSIDE[baseline]}, {INSIDE[main]} is {result}, judged by the 95\u00a0% interval of the paired "
        f"difference ({findings.test.draws:,} bootstrap draws of the test inputs)."
    )


def metric_values(test: Comparison, metric: str) -> str:
    values = [
        f"{LABELS[method]} {number(measured[metric].value, metric)} ({between(measured[metric], metric)})"
        for method, measured in test.measured.items()
    ]
    return f"{TITLES[metric]} with 95\u00a0% intervals: {'; '.join(values)}."


def contributions(findings: Findings) -> str:
    members = findings.members
    heads, probes = ([one for one in members if one.is_head is head] for head in (True, False))
    if not probes:
        return "Only the head was given a weight: this is temperature scaling."
    if not any(one.weight for one in members):
        return "All weights are 0: every class is equally likely."
    if not any(one.weight for one in probes):
        return "Only the head has weight: no probe improved the loss on the hold-out."
    head_share, probe_share = (sum(one.contribution for one in part) for part in (heads, probes))
    strongest = max(probes, key=lambda one: one.contribution)
    return (
        f"{sum(one.weight > 0 for one in members)} of {len(members)} members have weight. The head contributes "
        f"{share(head_share)}, the probes on earlier blocks {share(probe_share)}; the largest contribution among them, "
        f"{share(strongest.contribution)}, is that of {full_name(strongest, findings)}."
    )


def full_name(member: Member, findings: Findings) -> str:
    name = f"block “{member.name}”"
    return f"{name} of network {member.network + 1}" if len(findings.calibrated.networks) > 1 else name


def depth(findings: Findings) -> str:
    """How accurate the members are alone; empty where the calibration's file does not say."""
    known = [(one.accuracy, one) for one in findings.members if one.accuracy is not None]
    heads = [number(accuracy, "accuracy") for accuracy, one in known if one.is_head]
    probes = [pair for pair in known if not pair[1].is_head]
    if not known:
        return ""
    text = f"Alone, on the hold-out, the head has an accuracy of {listed(heads)}"
    if not probes:
        return f"{text}."
    best, probe = max(probes, key=lambda pair: pair[0])
    return (
        f"{text}; the best probe, on {full_name(probe, findings)} and before the budget reduced any, one of "
        f"{number(best, 'accuracy')}. A member that is seldom right alone can still help: its logits are added to those of "
        "the head and do not replace them, and where the two disagree, their sum is less confident than where they agree."
    )


def calibration(findings: Findings) -> str:
    parts = [f"{100 * findings.test.measured[method]['ece'].value:.2f} ({INSIDE[method]})" for method in findings.methods]
    return (
        f"Of the inputs with a confidence of {percent(0.8, 0)}, {percent(0.8, 0)} should be correct: dots on the diagonal. "
        f"On average over all inputs, confidence and accuracy differ by {listed(parts)} percentage points: lower is better."
    )


def reliability(findings: Findings, method: str) -> str:
    ece, diagram = findings.test.measured[method]["ece"], findings.diagrams[method]
    gap = -float(diagram.shares @ diagram.gaps)
    return (
        f"Calibration error {number(ece.value, 'ece')} (95\u00a0% interval {between(ece, 'ece')}; "
        f"{number(findings.test.ece_floor[method], 'ece')} expected by chance alone). Overall "
        f"{'overconfident' if gap > 0 else 'underconfident'} by {points(gap)}."
    )


def histogram(findings: Findings, method: str) -> str:
    diagram = findings.diagrams[method]
    top = int(diagram.counts[-1])
    return (
        f"{share(top / findings.test.rows)} of the inputs have a confidence above {percent(float(diagram.edges[-2]), 0)}; of "
        f"those {int(diagram.errors[-1]):,} of {top:,} are wrong."
    )


def deferral(findings: Findings) -> str:
    parts = []
    for method, curve in findings.coverage.items():
        _, risk = min(curve, key=lambda point: abs(point[0] - (1 - DEFERRED)))
        parts.append(f"{percent(risk)} ({INSIDE[method]})")
    everything = findings.coverage[findings.main][-1][1]
    return (
        f"Without the {share(DEFERRED)} of inputs with the lowest confidence, the error rate is {listed(parts)}; on all "
        f"inputs that of {INSIDE[findings.main]} is {percent(everything)}."
    )


def guarantee(findings: Findings) -> str:
    """What the thresholds of selective prediction promise, what they cost at 5 %, and what is assumed."""
    selectors = findings.selectors[MAIN_RISK]
    parts = [f"{percent(selector.fitted.coverage)} ({INSIDE[method]})" for method, selector in selectors.items()]
    delta = selectors[findings.main].delta
    return (
        "Thresholds with a guarantee: if only inputs of at least this confidence are answered, the error rate of the answers "
        f"stays at or below the allowed one, with a probability of {percent(1 - delta, 0)} over the draw of test inputs. For "
        f"an error rate of {percent(MAIN_RISK, 0)} the share answered is {listed(parts)}. This assumes that new inputs come "
        "from the same source as the test inputs; under distribution shift there is no guarantee."
    )


def classwise(findings: Findings) -> str:
    main, baseline = findings.main, findings.baseline
    worst = findings.classes[main][0]
    when = "it is never predicted"
    if not math.isnan(worst.confidence):
        when = (
            f"where {INSIDE[main]} predicts it, the mean confidence is {percent(worst.confidence)} and "
            f"{percent(worst.precision)} of these predictions are correct"
        )
    errors = findings.points["classwise_ece"]
    return (
        f"Class “{worst.name}” has the largest calibration error, {points(worst.error)}: {when}. The mean over classes is "
        f"{100 * errors[main]:.2f} points, against {100 * errors[baseline]:.2f} for {INSIDE[baseline]}."
    )


def shifts(findings: Findings) -> str:
    """Against the baseline and against the network: a shift can make the baseline so poor that beating it means little."""
    _, *shifted = findings.sets.values()
    counts = []
    for baseline in reversed(findings.methods[:-1]):
        verdicts = [verdict(one.differences[findings.main][baseline]["nll"], "nll") for one in shifted]
        names = {"better": "better", "worse": "worse", "unclear": "not clearly different"}
        parts = [f"{name} on {verdicts.count(outcome)}" for outcome, name in names.items() if outcome in verdicts]
        counts.append(f"compared with {INSIDE[baseline]}, {listed(parts)}")
    return (
        f"On {len(shifted)} shifted {'set' if len(shifted) == 1 else 'sets'}, the log-loss of {INSIDE[findings.main]} is, "
        f"{'; '.join(counts)}."
    )


def direction(metric: str) -> str:
    return "higher is better" if METRICS[metric].larger_is_better else "lower is better"


def number(value: float, metric: str = "nll") -> str:
    """A metric's value: shares in percent, scores with four digits."""
    if not math.isfinite(value):
        return "not finite"
    if metric in IN_PERCENT:
        return percent(value, 1 if metric == "accuracy" else 2)
    return f"{value:.4f}"


def percent(value: float, digits: int = 1) -> str:
    """With a no-break space before the sign."""
    return f"{100 * value:.{digits}f}\u00a0%"


def share(value: float) -> str:
    """In percent, with one more digit where it is small."""
    return percent(value, 0 if value >= 0.095 or not value else 1)


def points(value: float) -> str:
    """A difference of shares without its sign, in percentage points."""
    return f"{abs(100 * value):.{2 if abs(value) < 0.1 else 1}f} percentage points"


def between(interval: Interval, metric: str) -> str:
    low, high = (number(edge, metric) for edge in (interval.low, interval.high))
    return f"{low.removesuffix(chr(0xA0) + '%')} to {high}"


def signed(value: float, metric: str) -> str:
    """A difference with its sign; that of shares in percentage points, without the unit."""
    text = f"{100 * value:+.2f}" if metric in IN_PERCENT else f"{value:+.4f}"
    return text.replace("-", "−")


def inside_name(metric: str) -> str:
    """A metric's name in the middle of a sentence."""
    title = TITLES[metric]
    return title if title.startswith("Brier") else title[0].lower() + title[1:]


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
