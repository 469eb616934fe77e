"""The page's tables and facts hold the numbers found, each under its own heading."""

from dataclasses import replace

from lates.report.charts import WORST_CLASSES
from lates.report.sections import sections_of
from tests.report.known import CLASSES, FIT, KNOWN, MEMBERS, SUBJECT
from tests.report.pages import facts_in, table_in

KNOWN_PAGE = "".join(sections_of(KNOWN))


def test_facts_describe_the_subject() -> None:
    assert facts_in(KNOWN_PAGE) == {
        "Network": "Net",
        "Parameters": "20,000",
        "Added by the probes": "1,500 (7.5 %)",
        "Classes": "3",
        "Members with weight": "3 of 4",
        "Weights fitted on": "5,000 held-out inputs",
        "Weights fitted to": "log-loss: the optimum, certified",
        "Temperature of temperature scaling": "1.235",
        "Hold-out log-loss, network": "0.9001",
        "… with temperature scaling": "0.7002",
        "… with all members": "0.6503",
    }


def test_facts_of_several_networks_and_of_heads_alone() -> None:
    fit = replace(FIT, certified=False, temperature_weights=(0.5, 0.0))
    subject = replace(SUBJECT, networks=2, parameters=0, fit=fit)
    facts = facts_in("".join(sections_of(replace(KNOWN, subject=subject, members=MEMBERS[2:]))))
    assert facts["Network"] == "Net, ensemble of 2"
    assert facts["Weights fitted to"] == "log-loss: not certified"
    assert facts["Temperature of temperature scaling"] == "2.000, ∞"
    assert "… with all members" not in facts
    sampled = facts_in("".join(sections_of(replace(KNOWN, subject=replace(SUBJECT, samples=2)))))
    assert sampled["Network"] == "Net, mean of 2 dropout samples"


def test_comparison_table_has_values_differences_and_verdicts() -> None:
    caption = (
        "2,000 test inputs; 95\u00a0% intervals from 1,000 bootstrap draws; paired differences, those of shares in "
        "percentage points"
    )
    head, *rows = table_in(KNOWN_PAGE, caption)
    assert head == [
        "Metric", "Network", "Temperature scaling", "LATES", "LATES minus network", "LATES minus temperature scaling",
    ]  # fmt: skip
    cells = {name.split(" | ")[0]: row for name, *row in rows}
    assert {name.split(" | ")[1] for name, *_ in rows if "Acc" in name or "ROC" in name} == {"higher is better"}
    assert sum("lower is better" in name for name, *_ in rows) == 5
    assert cells["Accuracy"] == [
        "80.0 % | 78.9 to 81.1 %",
        "80.0 % | 78.9 to 81.1 %",
        "81.2 % | 80.1 to 82.3 %",
        "+1.20 better | +1.10 to +1.30",
        "+1.20 better | +0.20 to +2.20",
    ]
    assert cells["Brier score"][-2:] == ["−0.0350 better | −0.0360 to −0.0340", "+0.0150 worse | +0.0050 to +0.0250"]
    assert cells["Calibration error"][-1] == "−0.85 unclear | −1.85 to +0.15"
    assert cells["Calibration error expected by chance"] == ["1.01 %", "2.02 %", "3.03 %", "–", "–"]
    assert cells["Classwise calibration error"] == ["15.00 %", "10.00 %", "7.50 %", "–", "–"]
    assert cells["Area under ROC"] == ["0.9111", "0.9222", "0.9333", "–", "–"]


def test_members_table_has_every_member_and_its_source() -> None:
    caption = "Every member, from the first block to the head"
    assert table_in(KNOWN_PAGE, caption)[1:] == [
        ["early", "0.0500", "4.0 %", "40.0 % | 38.0 to 42.0 %"],
        ["silent", "0.0000", "0.0 %", "55.0 % | on the hold-out"],
        ["late", "0.5000", "36.0 %", "70.0 % | 68.0 to 72.0 %"],
        ["head", "0.8000", "60.0 %", "80.0 % | 78.0 to 82.0 %"],
    ]
    unknown = (*MEMBERS[:2], replace(MEMBERS[2], network=1, accuracy=None, holdout_accuracy=None), MEMBERS[3])
    html = "".join(sections_of(replace(KNOWN, members=unknown, subject=replace(SUBJECT, networks=2))))
    names = [row[0] for row in table_in(html, caption)[1:]]
    assert names == ["1/early", "1/silent", "2/late", "1/head"]
    assert table_in(html, caption)[3][-1] == "no probe kept"
    assert "<h3>Network 1. Contribution to the prediction</h3>" in html
    assert "<h3>Network 2. Accuracy of each member alone</h3>" in html


def test_bins_table_has_every_method() -> None:
    empty, full = table_in(KNOWN_PAGE, "Inputs, mean confidence and accuracy per bin")[1:]
    assert empty == ["0.0 to 50.0 %", *["0", "–", "–"] * 3]
    assert full == [
        "50.0 to 100.0 %",
        *("2,000", "92.0 %", "80.0 %"),
        *("2,000", "79.0 %", "80.0 %"),
        *("2,000", "80.0 %", "81.2 %"),
    ]


def test_classes_table_has_every_class_and_method() -> None:
    cat, dog = table_in(
        KNOWN_PAGE,
        "Calibration error of each class's probability; how often it was predicted, how confidently and correctly",
    )[1:]
    assert cat == [
        *("cat", "700"),
        *("20.00 %", "1,100", "91.0 %", "52.0 %"),
        *("15.00 %", "1,100", "81.0 %", "52.0 %"),
        *("12.50 %", "1,300", "71.0 %", "53.0 %"),
    ]
    assert dog[-4:] == ["2.50 %", "0", "–", "–"]
    assert "<figcaption>Ordered by the error of LATES.</figcaption>" in KNOWN_PAGE
    many = "".join(sections_of(replace(KNOWN, classes=CLASSES * 600)))
    assert f"<figcaption>The {WORST_CLASSES} worst of 1,200 classes. Ordered by" in many


def test_sets_table_has_differences_and_values() -> None:
    head, plain, fog = table_in(KNOWN_PAGE, "Every test set, with 95\u00a0% intervals")
    assert head[:4] == [
        "Test set", "Inputs", "Log-loss, LATES minus network", "Log-loss, LATES minus temperature scaling",
    ]  # fmt: skip
    assert dict(zip(head, plain, strict=True))["Log-loss, LATES"] == "0.6500 | 0.6390 to 0.6610"
    assert fog[:4] == ["fog", "1,500", "−0.2500 better | −0.2510 to −0.2490", "−0.0500 better | −0.0600 to −0.0400"]
    assert dict(zip(head, fog, strict=True))["Accuracy, LATES"] == "51.2 % | 50.1 to 52.3 %"


def test_thresholds_table_has_confidence_and_share_answered() -> None:
    caption = "Confidence from which the error rate is guaranteed, and the share of inputs answered"
    columns, *rows = table_in(KNOWN_PAGE, caption)
    assert columns[1::2] == [f"{name}: confidence" for name in ("Network", "Temperature scaling", "LATES")]
    assert rows == [
        ["1 %", "none", "0 %", "none", "0 %", "none", "0 %"],
        ["5 %", "0.9500", "50.0 %", "0.7500", "50.0 %", "0.7000", "60.0 %"],
    ]
