"""The page's sections say and tabulate the numbers found, each under its own heading."""

from dataclasses import replace
from pathlib import Path

from lates.report.charts import WORST_CLASSES
from lates.report.findings import Findings
from lates.report.sections import sections_of
from tests.report.known import CLASSES, FIT, KNOWN, MEMBERS, stand_in
from tests.report.pages import lines_of

RECORDED = Path(__file__).parent / "known_page.txt"


def lines_about(findings: Findings) -> list[str]:
    return lines_of(sections_of(findings))


def test_sections_read_as_recorded() -> None:
    """To record them anew, write `lines_about(KNOWN)` to the file, and read what changed."""
    assert lines_about(KNOWN) == RECORDED.read_text("utf-8").splitlines()


def test_facts_of_several_networks_and_of_heads_alone() -> None:
    fit = replace(FIT, certified=False, temperature_weights=(0.5, 0.0))
    lines = lines_about(replace(KNOWN, calibrated=stand_in(networks=2, fit=fit), members=MEMBERS[2:]))
    assert {
        "Network | Net, ensemble of 2",
        "Weights fitted to | log-loss: not certified",
        "Temperature of temperature scaling | 2.000, ∞",
    } <= set(lines)
    assert not any("… with this calibration" in line for line in lines)
    sampled = lines_about(replace(KNOWN, calibrated=stand_in(samples=2)))
    assert "Network | Net, mean of 2 dropout samples" in sampled


def test_members_of_several_networks_are_numbered() -> None:
    unknown = (*MEMBERS[:2], replace(MEMBERS[2], network=1, accuracy=None), MEMBERS[3])
    lines = lines_about(replace(KNOWN, members=unknown, calibrated=stand_in(networks=2)))
    start = lines.index("Member | Weight | Contribution | Accuracy on the hold-out")
    names = [line.split(" | ")[0] for line in lines[start + 1 : start + 5]]
    assert names == ["1/early", "1/silent", "2/late", "1/head"]
    assert lines[start + 3].endswith(" | –")
    assert {"Network 1. Contribution to the prediction", "Network 2. Accuracy of each member alone"} <= set(lines)


def test_the_chart_shows_the_worst_of_many_classes() -> None:
    lines = lines_about(replace(KNOWN, classes={method: scores * 600 for method, scores in CLASSES.items()}))
    assert f"The {WORST_CLASSES} worst of 1,200 classes. Ordered by the error of LATES." in lines
