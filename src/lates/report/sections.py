"""The page's sections, in HTML: a sentence from the numbers, the charts' places, and the numbers themselves as tables.

Whatever came from outside (names of classes, blocks, sets, the title) passes `escape` on its way in.
"""

import math
from collections.abc import Sequence
from html import escape

import lates.report.words as words
from lates.metrics.intervals import Interval
from lates.report.charts import FEW_SETS, WORST_CLASSES
from lates.report.numbers import Findings, Subject
from lates.report.predictions import NETWORK, TEMPERATURE
from lates.report.words import LABELS, METRIC_TITLES, between, number, percent, signed, signed_range, verdict

Cell = str
"""HTML"""


def sections_of(findings: Findings) -> list[str]:
    """In the order in which somebody would ask."""
    parts = [
        _section("subject", "What was calibrated", _facts(findings.subject)),
        _section("comparison", "Does it help?", _comparison(findings)),
        _section("votes", "Which layers vote", _votes(findings)),
        _section("reliability", "Is the confidence honest?", _reliability(findings)),
        _section("coverage-section", "When to hand over", _coverage(findings)),
        _section("classes-section", "Class by class, the worst first", _classes(findings)),
    ]
    if len(findings.sets) > 1:
        parts.append(_section("shifts", "Under shift", _shifts(findings)))
    return [*parts, _section("reading", "How to read this", _reading(findings))]


def _section(place: str, title: str, content: str) -> str:
    return (
        f'<section id="{place}" aria-labelledby="{place}-title"><h2 id="{place}-title">{title}</h2>{content}</section>'
    )


def _figure(*places: str, title: str = "", hint: str = "", caption: str = "", method: str = "") -> str:
    """One or more charts below each other, with one heading and one caption."""
    tag = f' data-method="{method}"' if method else ""
    small = f" <small>{escape(hint)}</small>" if hint else ""
    heading = f"<h3>{escape(title)}{small}</h3>" if title else ""
    charts = "".join(f'<div class="chart" id="{place}"></div>' for place in places)
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{tag}>{heading}{charts}{text}</figure>"


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def _table(head: Sequence[tuple[str, str]], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    """`head`: (title, method or ""); a column of a method goes with its switch.

    The caption stands outside: inside it would be as wide as the table, and scroll away with it.
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


def _with_interval(found: Interval, metric: str) -> Cell:
    return f"{number(found.value, metric)}<small>{between(found, metric)}</small>"


def _difference(found: Interval, metric: str) -> Cell:
    outcome = verdict(found, metric)
    return (
        f'<span class="{outcome}">{signed(found.value, metric)} {outcome}</span>'
        f"<small>{signed_range(found, metric)}</small>"
    )


def _difference_titles(findings: Findings, metric: str = "") -> list[tuple[str, str]]:
    start = f"{metric}, {LABELS[findings.main]}" if metric else LABELS[findings.main]
    return [(f"{start} minus {LABELS[method].lower()}", method) for method in findings.methods[:-1]]


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _facts(subject: Subject) -> str:
    drawn = ""
    if subject.samples > 1:
        drawn = f", mean of {subject.samples} dropout samples"
    elif subject.networks > 1:
        drawn = f", ensemble of {subject.networks}"
    temperatures = ", ".join("∞" if math.isinf(value) else f"{value:.3f}" for value in subject.temperatures)
    certified = "the certified optimum" if subject.certified else "not certified"
    added = subject.added_parameters / max(1, subject.parameters)
    facts = {
        "Network": f"{subject.network}{drawn}",
        "Parameters": f"{subject.parameters:,}",
        "Added by the probes": f"{subject.added_parameters:,} ({percent(added)})",
        "Classes": f"{subject.classes:,}",
        "Members that vote": f"{subject.voting} of {subject.members}",
        "Weights fitted on": f"{subject.holdout_rows:,} held-out inputs",
        "Weights fitted to": f"{words.LOSSES[subject.loss]}, {certified}",
        "Temperature scaling divides by": temperatures,
        "Hold-out log-loss, network": number(subject.nll_network),
        "… with temperature scaling": number(subject.nll_temperature),
    }
    if subject.members > subject.networks:
        facts["… with all members"] = number(subject.nll)
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{items}</dl>'


def _comparison(findings: Findings) -> str:
    test, methods = findings.test, findings.methods
    hints = {"accuracy": "more is better", "nll": "less is better", "ece": "less is better", "brier": "less is better"}
    figures = "".join(
        _figure(f"metric-{metric}", title=METRIC_TITLES[metric], hint=hint) for metric, hint in hints.items()
    )
    rows: list[list[Cell]] = []
    for metric in ("accuracy", "nll", "brier", "ece", "aurc"):
        measured = [test.measured[method][metric] for method in methods]
        cells = [_with_interval(own, metric) for own in measured]
        for method in methods[:-1]:
            cells.append(_difference(test.differences[method][metric], metric))
        rows.append([METRIC_TITLES[metric], *cells])
    none = ["–"] * (len(methods) - 1)
    rows.append(["Calibration error expected by chance", *(number(test.ece_floor[m], "ece") for m in methods), *none])
    for metric, values in findings.points.items():
        rows.append([METRIC_TITLES[metric], *(number(values[method], metric) for method in methods), *none])
    head = [("Metric", ""), *((LABELS[method], method) for method in methods)]
    head += _difference_titles(findings)
    caption = (
        f"{test.rows:,} test inputs; 95\u00a0% intervals from {test.draws:,} bootstrap draws; differences paired, those of "
        "shares in percentage points"
    )
    return (
        _paragraph(words.comparison(findings)) + f'<div class="grid four">{figures}</div>' + _table(head, rows, caption)
    )


def _votes(findings: Findings) -> str:
    several = findings.subject.networks > 1
    figures = ""
    for network in range(findings.subject.networks):
        label = f"Network {network + 1}. " if several else ""
        figures += _figure(f"votes-{network}", title=f"{label}Contribution to the prediction")
        figures += _figure(f"depth-{network}", title=f"{label}Accuracy of each member by itself")
    rows = []
    for member in findings.members:
        known = "no probe kept"
        if member.accuracy is not None:
            known = _with_interval(member.accuracy, "accuracy")
        elif member.holdout_accuracy is not None:
            known = f"{number(member.holdout_accuracy, 'accuracy')}<small>{words.ON_THE_HOLDOUT}</small>"
        name = f"{member.network + 1}/{member.name}" if several else member.name
        rows.append([escape(name), f"{member.weight:.4f}", percent(member.contribution), known])
    head = [("Member", ""), ("Weight", ""), ("Contribution", ""), ("Accuracy", "")]
    table = _table(head, rows, "Every member considered, from the first block to the head")
    return (
        _paragraph(words.votes(findings))
        + _paragraph(words.depth(findings))
        + f'<div class="grid two">{figures}</div>'
        + _details("Numbers of every member", table)
    )


def _reliability(findings: Findings) -> str:
    panels = "".join(
        _figure(
            f"reliability-{method}",
            f"histogram-{method}",
            f"wrong-{method}",
            title=LABELS[method],
            caption=words.panel(findings, method),
            method=method,
        )
        for method in findings.methods
    )
    head = [("Confidence", "")]
    for method in findings.methods:
        head += [(f"{LABELS[method]}: inputs", method), ("sure", method), ("right", method)]
    rows: list[list[Cell]] = []
    for place, own in enumerate(findings.bins[findings.main]):
        cells: list[Cell] = [f"{100 * own.low:.1f} to {percent(own.high)}"]
        for method in findings.methods:
            one = findings.bins[method][place]
            means = [percent(mean) if one.count else "–" for mean in (one.confidence, one.accuracy)]
            cells += [f"{one.count:,}", *means]
        rows.append(cells)
    note = (
        "Dots grow with the number of inputs in the bin, which stands at the foot; thin lines are 95\u00a0% intervals of the "
        "accuracy, thick pale ones the gap to the diagonal. Below them, how many inputs get which confidence, and in purple, "
        "on a scale of its own, how many of those are answered wrongly."
    )
    return (
        _paragraph(words.honesty(findings))
        + f'<div class="kept"><div class="grid three">{panels}</div>{_paragraph(note, "note")}</div>'
        + _details("Numbers of every bin", _table(head, rows, "Inputs, mean confidence and accuracy per bin"))
    )


def _coverage(findings: Findings) -> str:
    text = "Sort the inputs by confidence and answer only the surest: how often is the answer wrong? Lower is better."
    head = [("Answered", ""), *((LABELS[method], method) for method in findings.methods)]
    rows: list[list[Cell]] = []
    for tenth in range(1, 11):
        risks = [words.risk_at(findings.coverage[method], tenth / 10) for method in findings.methods]
        rows.append([percent(tenth / 10, 0), *(percent(risk, 2) for risk in risks)])
    table = _table(head, rows, "How often the answer is wrong, by the share of inputs answered, the surest first")
    return (
        _paragraph(words.handing_over(findings))
        + _figure("coverage", caption=text)
        + _details("Numbers of the curve", table)
    )


def _classes(findings: Findings) -> str:
    shown = min(WORST_CLASSES, len(findings.classes))
    note = f"The {shown} worst of {len(findings.classes):,} classes. " if shown < len(findings.classes) else ""
    head = [("Class", ""), ("Inputs", "")]
    for method in findings.methods:
        head += [(f"{LABELS[method]}: error", method), ("answered", method), ("sure", method), ("right", method)]
    rows: list[list[Cell]] = []
    for one in findings.classes:
        cells: list[Cell] = [escape(one.name), f"{one.rows:,}"]
        for method in findings.methods:
            means = (one.confidence[method], one.precision[method])
            known = [percent(mean) if one.predicted[method] else "–" for mean in means]
            cells += [number(one.error[method], "ece"), f"{one.predicted[method]:,}", *known]
        rows.append(cells)
    caption = "Error of each class's probability; how often it was answered, how sure then, how often right"
    return (
        _paragraph(words.classwise(findings))
        + _figure("classes", caption=f"{note}Ordered by the error of {words.INSIDE[findings.main]}.")
        + _details("Numbers of every class", _table(head, rows, caption))
    )


def _shifts(findings: Findings) -> str:
    figures = "".join(_figure(f"shift-{metric}", title=METRIC_TITLES[metric]) for metric in ("accuracy", "nll", "ece"))
    metrics = ("accuracy", "nll", "brier", "ece")
    head = [("Test set", ""), ("Inputs", ""), *_difference_titles(findings, METRIC_TITLES["nll"])]
    head += [
        (f"{METRIC_TITLES[metric]}, {LABELS[method]}", method) for metric in metrics for method in findings.methods
    ]
    rows = [
        [
            escape(one.name),
            f"{one.rows:,}",
            *(_difference(one.differences[method]["nll"], "nll") for method in findings.methods[:-1]),
            *(
                _with_interval(one.measured[method][metric], metric)
                for metric in metrics
                for method in findings.methods
            ),
        ]
        for one in findings.sets
    ]
    return (
        _paragraph(words.shifts(findings))
        + f'<div class="grid {"three" if len(findings.sets) <= FEW_SETS else ""}">{figures}</div>'
        + _details("Numbers of every test set", _table(head, rows, "Every test set, with 95\u00a0% intervals"))
    )


def _reading(findings: Findings) -> str:
    paragraphs = [
        "Accuracy: how often the likeliest class is the label. Log-loss: the mean of −log of the label's probability. Brier "
        "score: the mean squared distance between the probabilities and the truth. Calibration error (ECE): the mean gap "
        "between confidence and accuracy over 15 bins of equal width; even a perfect model measures more than 0 on finitely "
        "many inputs, so compare it with what chance alone would give.",
        "Area under risk–coverage: the error rate averaged over all shares of inputs answered, the surest first. Classwise "
        "calibration error: the same gap for each class's probability, averaged over classes. Area under ROC: how well each "
        "class's probability ranks its inputs above others, averaged over classes.",
        f"{LABELS[NETWORK]}: the network as it was. {LABELS[TEMPERATURE]}: its logits divided by one number. LATES: the "
        "weighted sum of its logits and those of linear probes on its earlier blocks. Weights were fitted on held-out inputs; "
        "nothing on this page was fitted on the test inputs.",
        "A difference is called better or worse where its 95\u00a0% interval excludes zero. Of twenty comparisons without any "
        "true difference, about one would still be called so. Intervals say how the numbers vary with the inputs; another "
        "training of the same network would vary them further.",
    ]
    return "".join(_paragraph(text, "note") for text in paragraphs)
