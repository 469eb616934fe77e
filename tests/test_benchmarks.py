"""The benchmarks' own logic, and each row once at a size that takes no time; no peer's environment is made here."""

import json
import math
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from benchmarks import environments
from benchmarks.contest import OURS, Contender, Ratios, Run, Times, compete, gather, in_units, interleave
from benchmarks.environments import PEERS, Peer, python_of
from benchmarks.inputs import make_logits, make_members, save_logits
from benchmarks.memory import PeakMemory
from benchmarks.records import Goal, Group, Line, keeps_up, machine, merge, results
from benchmarks.rows import calibrate, growth, inference, large, metrics, stack, temperature
from benchmarks.table import WIDTH, draw_end, draw_group
from benchmarks.worker import answer
from lates import fit_stack
from lates import metrics as measures


def test_runs_take_turns_after_one_unmeasured_round() -> None:
    calls: list[str] = []

    def runner(who: str, seconds: float) -> Run:
        calls.append(who)
        return Run(seconds, float(len(calls)))

    first, second = interleave({"a": lambda: runner("a", 0.1), "b": lambda: runner("b", 0.2)}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert (first.seconds, second.seconds) == ((0.1,) * 3, (0.2,) * 3)
    assert second.runs[-1].value == 8.0


def test_slow_runs_are_repeated_less_often_but_ours_at_least_three_times() -> None:
    found = interleave({"slow": lambda: Run(2.0), "very slow": lambda: Run(60.0), OURS: lambda: Run(60.0)}, rounds=7)
    assert [len(each.runs) for each in found] == [3, 1, 3]


def test_a_unit_is_measured_before_and_after_each_run() -> None:
    units = iter([1.0, 3.0, 1.0, 1.0])
    times = in_units(lambda: next(units), lambda: 8.0, rounds=7)
    assert times == Ratios((8.0,) * 3, (1.0, 3.0, 1.0, 1.0), (4.0, 4.0, 8.0))
    assert (times.median, times.quartiles) == (4.0, (4.0, 6.0))


@pytest.mark.parametrize(
    ("seconds", "unnoticed", "met"), [(1.5, 0.0, True), (1.6, 0.0, False), (1.6, 2.0, True), (1.6, 1.5, False)]
)
def test_goal_is_at_most_one_and_a_half_times_the_fastest_peer_or_unnoticed(
    seconds: float, unnoticed: float, met: bool
) -> None:
    peers = [Times("slow", [Run(9.0)]), Times("fast", [Run(1.0)])]
    goal = keeps_up(Times(OURS, [Run(seconds)]), peers, unnoticed)
    assert (goal.found, goal.met) == (f"{seconds:.2f}x (fast)", met)


def test_a_contender_that_fails_is_named_and_the_others_go_on() -> None:
    def broken() -> Run:
        raise RuntimeError("no such function")

    bad, good = interleave({"bad": broken, "good": lambda: Run(0.1, 1.0)}, rounds=2)
    assert bad.fault == "no such function"
    assert (good.fault, good.median) == (None, 0.1)


def test_the_median_is_what_counts_and_its_parts_add_up() -> None:
    times = Times("who", [Run(9.0, softmax=1.0), Run(1.0, softmax=0.5), Run(2.0, softmax=1.5)])
    assert times.median == 2.0
    assert (times.middle.softmax, metrics.rest(times.middle)) == (1.5, 0.5)


def test_a_softmax_is_timed_in_the_run_that_needs_it() -> None:
    adapter = ModuleType("adapter")
    adapter.__dict__["softmax"] = lambda logits: time.sleep(0.02) or logits / 2
    adapter.__dict__["brier"] = lambda probabilities, labels: probabilities + labels
    adapter.__dict__["nll"] = lambda logits, labels: logits + labels
    state = {"inputs": (4.0, 1.0), "logits": np.zeros(1)}
    brier, nll = (answer(adapter, state, {"do": "run", "task": task}) for task in ("brier", "nll"))
    assert (brier["value"], nll["value"]) == (3.0, 5.0)
    assert 0.02 <= brier["softmax"] <= brier["seconds"]
    assert nll["softmax"] is None


def test_a_worker_answers_with_time_and_value(tmp_path: Path) -> None:
    files = save_logits(tmp_path, 300, 4)
    with Contender(OURS, "ours", Path(sys.executable), threads=1) as ours:
        ours.ask(do="load", **files)
        assert all(ours.ask(do="ask", task=task)["able"] for task in (*metrics.TITLES, "temperature"))
        assert not ours.ask(do="ask", task="missing")["able"]
        told = ours.ask(do="run", task="temperature")
        with pytest.raises(RuntimeError, match=r"AttributeError.*no attribute 'missing'"):
            ours.ask(do="run", task="missing")
    logits, labels = (torch.from_numpy(np.load(files[name])) for name in ("logits", "labels"))
    assert told["value"] == float(fit_stack([logits], labels).weights[0])
    assert told["seconds"] > 0
    assert told["softmax"] is None


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(python: Path, arguments: tuple[str, ...]) -> None:
        raise RuntimeError("cannot be installed: no network")

    monkeypatch.setattr(environments, "HOME", tmp_path)
    monkeypatch.setattr(environments, "_install", refuse)
    monkeypatch.setattr(environments.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr("benchmarks.contest.python_of", lambda peer: python_of(peer, tmp_path))
    with ExitStack() as stack_of_workers:
        found, absent = gather(stack_of_workers, ["netcal"], threads=1)
        assert [each.who for each in found] == [OURS]
    assert absent == {"netcal": "cannot be installed: no network"}


def test_an_environment_that_is_there_is_used_again_until_other_versions_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(environments, "_install", lambda _, arguments: installed.append(arguments))
    monkeypatch.setattr(environments.venv, "create", lambda folder, **_: folder.mkdir(parents=True, exist_ok=True))
    peer = Peer("peer", "peer", ("numpy==2.4.6",), alone=("peer==1.0",))
    assert python_of(peer, tmp_path) == python_of(peer, tmp_path)
    assert installed == [("numpy==2.4.6",), ("--no-deps", "peer==1.0")]
    python_of(Peer("peer", "peer", ("numpy==2.4.5",)), tmp_path)
    assert installed[2:] == [("numpy==2.4.5",)]
    assert (tmp_path / ".gitignore").read_text("utf-8") == "*\n"


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_has_an_adapter_and_a_pinned_version(peer: Peer) -> None:
    folder = Path(environments.__file__).parent / "adapters"
    assert "import native as native" in (folder / f"{peer.adapter}.py").read_text("utf-8")
    assert peer.version
    pinned = {line.partition("==")[0] for line in environments.CONSTRAINTS.read_text("utf-8").splitlines()}
    assert {*peer.requirements, *peer.alone} <= pinned


def test_temperatures_are_judged_by_the_log_loss_that_they_reach(tmp_path: Path) -> None:
    (group,) = temperature.measure(((400, 5),), adapters=(), rounds=1, threads=1, folder=tmp_path)
    files = save_logits(tmp_path, 400, 5)
    logits, labels = (torch.from_numpy(np.load(files[name])) for name in ("logits", "labels"))
    best = fit_stack([logits], labels)
    assert group.lines[0].reached == f"NLL {best.nll:.9f}"
    assert temperature.log_loss(files, 1.1 * float(best.weights[0])) > best.nll


def test_lates_must_not_fail() -> None:
    with (
        Contender(OURS, "ours", Path(sys.executable), threads=1) as ours,
        pytest.raises(RuntimeError, match=r"lates itself failed in ece: KeyError: 'inputs'"),
    ):
        compete([ours], "ece", rounds=1)


def test_metrics_row(tmp_path: Path) -> None:
    groups = metrics.measure(((200, 5),), adapters=(), rounds=1, threads=1, folder=tmp_path)
    assert [group.title.partition(",")[0] for group in groups] == list(metrics.TITLES.values())


def test_stack_row() -> None:
    (group,) = stack.measure(((1_000, 5, 3),), rounds=2, threads=1)
    assert [(line.who, len(line.repeats)) for line in group.lines] == [(OURS, 2), ("one logsumexp pass", 3)]
    assert [goal.met for goal in group.goals][1:3] == [True, True]


def test_inference_row_counts_operations_and_time() -> None:
    operations, forward = inference.measure((1,), ("eager",), rounds=1, threads=1, train=8, holdout=8)
    assert operations.goals[0].met
    assert forward.title == "Forward pass, batch 1, eager"
    assert forward.goals[0].met is None


def test_a_network_that_does_not_compile_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: torch.nn.Module, *, dynamic: bool) -> torch.nn.Module:
        def forward(images: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no compiler here")

        model = torch.nn.Module()
        model.forward = forward
        return model

    monkeypatch.setattr(torch, "compile", refuse)
    *_, forward = inference.measure((1,), ("compiled",), rounds=1, threads=1, train=8, holdout=8)
    assert forward.absent == {"Forward pass, batch 1, compiled": "no compiler here"}


def test_calibrate_row_says_where_the_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "infer", lambda *_: time.sleep(0.3))
    without_views, default = calibrate.measure(8, 8, rounds=3, threads=1)
    assert [group.goals[0].text[:7] for group in (without_views, default)] == ["under 3", "under 6"]
    for group in (without_views, default):
        calibrate_line, unit = group.lines
        parts = dict(part.split() for part in calibrate_line.reached.split(", "))
        assert (next(iter(parts)), list(parts)[-1], unit.who) == ("holdout", "rest", "one inference pass")
        assert min(map(float, parts.values())) >= 0, parts


def test_growth_row() -> None:
    first = next(growth.measure({"rows": 50, "classes": 2, "members": 1}, rounds=1, threads=1))
    assert [line.who for line in first.lines] == ["50 rows", "100 rows", "200 rows", "400 rows"]


def test_the_exponent_of_a_power_is_found() -> None:
    assert growth.exponent([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2)


def test_large_members_are_mapped_and_removed(tmp_path: Path) -> None:
    (group,) = large.measure((500, 4, 3), threads=1, folder=tmp_path)
    assert group.goals[0].met
    assert "certified" in group.lines[0].reached
    assert list(tmp_path.iterdir()) == []


def test_peak_memory_sees_what_is_gone_again() -> None:
    with PeakMemory() as memory:
        held = torch.ones(16_000_000)
        deadline = time.monotonic() + 10
        while memory.extra < 32_000_000 and time.monotonic() < deadline:
            held.sum()
        del held
    assert memory.extra >= 32_000_000


def test_the_table_keeps_within_its_width_and_counts_goals() -> None:
    line = Line("a peer", 0.0123, ratio=2.0, reached="x" * 200)
    goals = (Goal("fast", "2x", True), Goal("same", "1", False), Goal("growth", "n^1", None))
    group = Group(1, "Title", (line,), goals, {"absent peer": "no network, " + 20 * "long " + "story"})
    text = f"{draw_group(group)}\n{draw_end([group, group])}"
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "12.3 ms" in draw_group(group)
    assert text.count("Not measured: absent peer: no network") == 1
    assert text.count("story") == 1
    assert text.endswith("2 of 4 goals met")


def test_the_table_says_how_often_each_was_run() -> None:
    lines = Line("often", 1.0, repeats=(1.0, 1.0)), Line("once", 1.0, repeats=(1.0,)), Line("counted", 1.0)
    _, often, once, counted = draw_group(Group(1, "Title", lines)).splitlines()
    assert (often.split()[-2:], once.split()[-2:], counted.split()[-2:]) == (["2", "runs"], ["1", "run"], ["1", "s"])


def test_results_replace_what_the_same_machine_measured_of_the_same_rows(tmp_path: Path) -> None:
    path, here, card = tmp_path / "results.json", machine(), {**machine(), "name": "a card"}
    merge(results([Group(4, "slow", (Line("lates", 9.0),)), Group(2, "stack", ())], here, 3.14, 0.0), path)
    merge(results([Group(4, "on a card", ())], card, 1.0, 0.0), path)
    merge(results([Group(4, "fast", (Line("lates", 1.0, repeats=(1.0, 2.0)),))], here, 2.0, 0.5), path)
    found = json.loads(path.read_text("utf-8"))
    assert [(group["title"], group["machine"]) for group in found["groups"]] == [
        ("stack", here["name"]),
        ("on a card", "a card"),
        ("fast", here["name"]),
    ]
    assert found["groups"][2]["lines"][0]["repeats"] == [1.0, 2.0]
    assert [run["rows"] for run in found["runs"]] == [[2, 4], [4], [4]]
    assert found["runs"][0]["torch"] == version("torch")
    assert found["runs"][2]["load_before"] == 0.5


def test_the_logits_are_too_sure_and_not_sure_enough_so_that_definitions_of_the_ece_differ() -> None:
    logits, labels = make_logits(4_000, 20)
    confidence, predicted = logits.softmax(1).max(1)
    excess = confidence - (predicted == labels).double()
    order = confidence.argsort()
    assert excess[order[:1_000]].mean() < -0.05
    assert excess[order[-1_000:]].mean() > 0.05
    assert measures.ece(logits, labels) > 1.1 * measures.ece_smooth(logits, labels)


def test_members_are_the_same_each_time_and_the_head_is_the_best() -> None:
    members, labels = make_members(500, 6, 3)
    again, _ = make_members(500, 6, 3)
    assert all(map(torch.equal, members, again))
    losses = [fit_stack([member], labels).nll for member in members]
    assert losses == sorted(losses, reverse=True)
    assert math.isfinite(losses[0])
