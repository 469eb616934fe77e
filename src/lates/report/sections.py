"""The page's sections, in HTML: a sentence about the numbers, the charts by their ids, and the numbers as tables.

Text from outside (names of classes, blocks and sets, the title) is passed through `escape`.
"""

from collections.abc import Callable, Sequence
from html import escape

from lates.metrics import Interval, verdict
from lates.report import sentences
from lates.report.charts import FEW_SETS, WORST_CLASSES
from lates.report.findings import Findings
from lates.report.sentences import EXPLAINED, INSIDE, LABELS, TITLES, between, direction, number, percent, signed

LOSSES = {"nll": "log-loss", "brier": "Brier score", "soft_ece": "soft calibration error"}

Cell = str
"""HTML"""


def _figure(*charts: str, title: str = "", hint: str = "", caption: str = "", method: str = "") -> str:
    """One or more charts below each other, with one heading and one caption."""
    tag = f' data-method="{method}"' if method else ""
    small = f" <small>{escape(hint)}</small>" if hint else ""
    heading = f"<h3>{escape(title)}{small}</h3>" if title else ""
    divisions = "".join(f'<div class="chart" id="{chart}"></div>' for chart in charts)
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{tag}>{heading}{divisions}{text}</figure>"


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def _table(head: Sequence[tuple[str, str]], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    """`head`: (title, method or ""); the switch of a method hides its columns.

    The caption is outside the table: inside it would be as wide as the table and scroll out of view with it.
    """
    tags = [f' data-method="{method}"' if method else "" for _, method in head]
    titles = "".join(f'<th scope="col"{tag}>{escape(title)}</th>' for (title, _), tag in zip(head, tags, strict=True))
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td{tag}>{cell}</td>" for cell, tag in zip(rest, tags[1:], strict=True))
        + "</tr>"
        for first, *rest in rows
    )
    label = f'aria-label="{escape(caption)}"'
    return (
        f'<p class="caption" aria-hidden="true">{escape(caption)}</p><div class="scroll" tabindex="0" role="region" {label}>'
        f"<table {label}><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _details(summary: str, table: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{table}</details>"


def _with_interval(measured: Interval, metric: str) -> Cell:
    return f"{number(measured.value, metric)}<small>{between(measured, metric)}</small>"


def _metric_name(metric: str) -> Cell:
    return f"{TITLES[metric]}<small>{direction(metric)}</small>"


def _difference(difference: Interval, metric: str) -> Cell:
    outcome = verdict(difference, metric)
    value, low, high = (signed(each, metric) for each in (difference.value, difference.low, difference.high))
    return f'<span class="{outcome}">{value} {outcome}</span><small>{low} to {high}</small>'


def _difference_titles(findings: Findings, prefix: str = "") -> list[tuple[str, str]]:
    main = prefix + LABELS[findings.main]
    return [(f"{main} minus {LABELS[method].lower()}", method) for method in findings.methods[:-1]]


def _facts(findings: Findings) -> str:
    calibrated, fit, members = findings.calibrated, findings.calibrated.fit, findings.members
    networks = calibrated.networks
    kind = ""
    if calibrated.samples > 1:
        kind = f", mean of {calibrated.samples} dropout samples"
    elif len(networks) > 1:
        kind = f", ensemble of {len(networks)}"
    parameters = sum(each.numel() for one in networks for each in one.network.parameters())
    added = calibrated.added_parameters / max(1, parameters)
    temperatures = ["∞" if weight <= 0 else f"{1 / weight:.3f}" for weight in fit.temperature_weights]
    facts = {
        "Network": f"{type(networks[0].network.network).__name__}{kind}",
        "Parameters": f"{parameters:,}",
        "Added by the probes": f"{calibrated.added_parameters:,} ({percent(added)})",
        "Classes": f"{fit.classes:,}",
        "Members with weight": f"{sum(member.weight > 0 for member in members)} of {len(members)}",
        "Weights fitted on": f"{fit.rows:,} held-out inputs",
        "Weights fitted to": f"{LOSSES[fit.loss]}: {fit.outcome}",
        "Temperature of temperature scaling": ", ".join(temperatures),
        "Hold-out log-loss, network": number(fit.nll_network),
        "… with temperature scaling": number(fit.nll_temperature),
    }
    if len(members) > len(networks) or fit.scale != 1:
        facts["… with this calibration"] = number(fit.nll)
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    budget = _paragraph(f"Hold-out log-loss by budget, cross-validated: {fit.budget_note}.", "note") if fit.budget_note else ""
    return f'<dl class="facts">{items}</dl>{budget}'


def _comparison(findings: Findings) -> str:
    test, methods = findings.test, findings.methods
    figures = ""
    for metric in ("accuracy", "nll", "ece", "brier"):
        figures += _figure(f"metric-{metric}", title=TITLES[metric], hint=direction(metric))
    rows: list[list[Cell]] = []
    for metric in test.measured[findings.main]:
        measured = (_with_interval(test.measured[method][metric], metric) for method in methods)
        differences = (_difference(one[metric], metric) for one in test.differences[findings.main].values())
        rows.append([_metric_name(metric), *measured, *differences])
    none = ["–"] * (len(methods) - 1)
    rows.append(["Calibration error expected by chance", *(number(test.ece_floor[m], "ece") for m in methods), *none])
    for metric, values in findings.points.items():
        rows.append([_metric_name(metric), *(number(values[method], metric) for method in methods), *none])
    head = [("Metric", ""), *((LABELS[method], method) for method in methods), *_difference_titles(findings)]
    caption = (
        f"{test.rows:,} test inputs; 95\u00a0% intervals from {test.draws:,} bootstrap draws; paired differences, those of "
        "shares in percentage points"
    )
    return _paragraph(sentences.comparison(findings)) + f'<div class="grid four">{figures}</div>' + _table(head, rows, caption)


def _contributions(findings: Findings) -> str:
    networks = len(findings.calibrated.networks)
    figures = ""
    for network in range(networks):
        label = f"Network {network + 1}. " if networks > 1 else ""
        figures += _figure(f"contributions-{network}", title=f"{label}Contribution to the prediction")
        if sentences.depth(findings):
            figures += _figure(f"depth-{network}", title=f"{label}Accuracy of each member alone")
    rows = []
    for member in findings.members:
        accuracy = "–" if member.accuracy is None else number(member.accuracy, "accuracy")
        name = f"{member.network + 1}/{member.name}" if networks > 1 else member.name
        rows.append([escape(name), f"{member.weight:.4f}", percent(member.contribution), accuracy])
    head = [("Member", ""), ("Weight", ""), ("Contribution", ""), ("Accuracy on the hold-out", "")]
    return (
        _paragraph(sentences.contributions(findings))
        + _paragraph(sentences.depth(findings))
        + f'<div class="grid two">{figures}</div>'
        + _details("Numbers of every member", _table(head, rows, "Every member, from the first block to the head"))
    )


def _reliability(findings: Findings) -> str:
    panels = "".join(
        _figure(
            *(f"{kind}-{method}" for kind in ("reliability", "histogram", "wrong")),
            title=LABELS[method],
            hint=EXPLAINED[method],
            caption=f"{sentences.reliability(findings, method)} {sentences.histogram(findings, method)}",
            method=method,
        )
        for method in findings.methods
    )
    note = (
        "The size of a dot shows the number of inputs in its bin. Thin lines are 95\u00a0% intervals of the accuracy, thick "
        "pale lines the gap to the diagonal. Below: the number of inputs per confidence and, in purple and on a scale of its "
        "own, the number of errors among them."
    )
    grid = f'<div class="grid three square">{panels}</div>'
    return f'{_paragraph(sentences.calibration(findings))}<div class="kept">{grid}{_paragraph(note, "note")}</div>'


def _coverage(findings: Findings) -> str:
    text = "Inputs sorted by confidence: the error rate if only the most confident ones are answered."
    return (
        _paragraph(sentences.deferral(findings))
        + _figure("coverage", caption=text)
        + _paragraph(sentences.guarantee(findings))
        + _thresholds(findings)
    )


def _thresholds(findings: Findings) -> str:
    """The confidence needed and the share answered, by the error rate allowed."""
    head = [("Error rate allowed", "")]
    for method in findings.methods:
        head += [(f"{LABELS[method]}: confidence", method), ("answered", method)]
    rows: list[list[Cell]] = []
    for risk, selectors in findings.selectors.items():
        cells: list[Cell] = [percent(risk, 0)]
        for selector in selectors.values():
            promise = f"{selector.threshold:.4f}", percent(selector.fitted.coverage)
            cells += promise if selector.fitted.accepted else ("none", percent(0, 0))
        rows.append(cells)
    return _table(head, rows, "Confidence from which the error rate is guaranteed, and the share of inputs answered")


def _classes(findings: Findings) -> str:
    every = len(findings.classes[findings.main])
    note = f"The {WORST_CLASSES} worst of {every:,} classes. " if every > WORST_CLASSES else ""
    head = [("Class", ""), ("Inputs", "")]
    for method in findings.methods:
        titles = (f"{LABELS[method]}: error", "predicted", "mean confidence", "correct")
        head += [(title, method) for title in titles]
    rows: list[list[Cell]] = []
    for scores in zip(*findings.classes.values(), strict=True):
        cells: list[Cell] = [escape(scores[0].name), f"{scores[0].rows:,}"]
        for score in scores:
            means = [percent(m) if score.predicted else "–" for m in (score.confidence, score.precision)]
            cells += [number(score.error, "ece"), f"{score.predicted:,}", *means]
        rows.append(cells)
    caption = "Calibration error of each class's probability; how often it was predicted, how confidently and correctly"
    return (
        _paragraph(sentences.classwise(findings))
        + _figure("classes", caption=f"{note}Ordered by the error of {INSIDE[findings.main]}.")
        + _details("Numbers of every class", _table(head, rows, caption))
    )


def _shifts(findings: Findings) -> str:
    figures = "".join(
        _figure(f"shift-{metric}", title=TITLES[metric], hint=direction(metric)) for metric in ("accuracy", "nll", "ece")
    )
    pairs = [(metric, method) for metric in ("accuracy", "nll", "brier", "ece") for method in findings.methods]
    head = [("Test set", ""), ("Inputs", ""), *_difference_titles(findings, "Log-loss, ")]
    head += [(f"{TITLES[metric]}, {LABELS[method]}", method) for metric, method in pairs]
    rows = [
        [
            *(escape(name), f"{one.rows:,}"),
            *(_difference(difference["nll"], "nll") for difference in one.differences[findings.main].values()),
            *(_with_interval(one.measured[method][metric], metric) for metric, method in pairs),
        ]
        for name, one in findings.sets.items()
    ]
    return (
        _paragraph(sentences.shifts(findings))
        + f'<div class="grid {"three" if len(findings.sets) <= FEW_SETS else ""}">{figures}</div>'
        + _details("Numbers of every test set", _table(head, rows, "Every test set, with 95\u00a0% intervals"))
    )


SECTIONS: dict[str, tuple[str, Callable[[Findings], str]]] = {
    "reliability": ("Is the confidence calibrated?", _reliability),
    "comparison": ("Does it help?", _comparison),
    "contributions": ("Which layers contribute", _contributions),
    "coverage-section": ("Abstaining on uncertain inputs", _coverage),
    "classes-section": ("Class by class, worst first", _classes),
    "shifts": ("Under distribution shift", _shifts),
    "subject": ("What was calibrated", _facts),
}
"""In the order in which a reader would ask: id -> title and content."""


def sections_of(findings: Findings) -> str:
    return "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{content(findings)}</section>'
        for name, (title, content) in SECTIONS.items()
        if name != "shifts" or len(findings.sets) > 1
    )
