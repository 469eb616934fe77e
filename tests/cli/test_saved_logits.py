"""Saved logits: read from every kind of file, fitted and evaluated without a network."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import lates
from lates.cli.saved_logits import read_logits
from lates.model import member_table, write_calibration
from tests.cli.commands import error_of, results_of, run
from tests.problems import sharpened, two_signals

ROWS, CLASSES = 400, 3


def draw(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    logits, labels = sharpened(2.0, ROWS, CLASSES, seed)
    return logits.numpy(), labels.numpy()


def write(path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    if path.suffix == ".npz":
        np.savez(path, logits=logits, labels=labels)
    elif path.suffix == ".safetensors":
        save_file({"logits": torch.from_numpy(logits), "labels": torch.from_numpy(labels)}, path)
    else:
        header = ",".join(["label", *(f"class {place}" for place in range(logits.shape[1]))])
        np.savetxt(path, np.column_stack([labels, logits]), delimiter=",", header=header, comments="", fmt="%.17g")


@pytest.mark.parametrize("header", ["", "a,b,c,target"])
def test_a_label_column_without_its_name_is_refused(tmp_path: Path, header: str) -> None:
    logits, labels = draw()
    table = np.column_stack([logits, labels])
    np.savetxt(tmp_path / "plain.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
    np.save(tmp_path / "labels.npy", labels)
    printed = error_of("fit", tmp_path / "plain.csv", "--labels", tmp_path / "labels.npy")
    assert 'column 4 holds the labels, not logits. Give the file a header that names it "label"' in printed


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv"])
def test_labels_are_read_from_a_separate_file(tmp_path: Path, suffix: str) -> None:
    logits, labels = draw()
    np.save(tmp_path / "logits.npy", logits)
    path = tmp_path / f"labels{suffix}"
    if suffix == ".npy":
        np.save(path, labels.astype(np.uint8))
    elif suffix == ".npz":
        np.savez(path, labels=labels.astype(">i4"))
    elif suffix == ".safetensors":
        save_file({"y": torch.from_numpy(labels)}, path)
    else:
        np.savetxt(path, labels, fmt="%d")
    members, truth = read_logits(tmp_path / "logits.npy", path)
    assert np.array_equal(members["head"].numpy(), logits)
    assert np.array_equal(truth.numpy(), labels)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 6),
    classes=st.integers(1, 5),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(["<f2", "<f4", "<f8", ">f4", ">f8"]),
    suffix=st.sampled_from([".npz", ".safetensors", ".csv"]),
)
def test_written_files_are_read_back(tmp_path: Path, rows: int, classes: int, seed: int, dtype: str, suffix: str) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(scale=30, size=(rows, classes)).astype(dtype)
    labels = random.integers(0, classes, rows)
    path = tmp_path / f"saved{suffix}"
    write(path, logits if suffix != ".safetensors" else logits.astype(logits.dtype.newbyteorder("=")), labels)
    members, truth = read_logits(path)
    assert list(members) == ["head"]
    assert np.array_equal(members["head"].double().numpy(), logits.astype(np.float64))
    assert np.array_equal(truth.numpy(), labels)


@pytest.mark.parametrize("form", ["stacked", "named", "named logits"])
def test_members_keep_their_names_and_the_head_is_last(tmp_path: Path, form: str) -> None:
    members, labels, _ = two_signals(ROWS, CLASSES, silent=1)
    first, second, head = (member.numpy() for member in members)
    if form == "stacked":
        np.savez(tmp_path / "m.npz", members=np.stack([first, second, head], axis=2), labels=labels)
    else:
        last = "head" if form == "named" else "logits"
        (tmp_path / "m.npz").write_bytes(save_npz(**{last: head, "a": first, "b": second, "labels": labels.numpy()}))
    found, _ = read_logits(tmp_path / "m.npz")
    assert list(found) == (["0", "1", "head"] if form == "stacked" else ["a", "b", "head"])
    assert np.array_equal(found["head"].numpy(), head)


def save_npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


LOGITS, LABELS = draw()


def npy_header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


NO_NUMBERS, NO_TEXT = "not a table of numbers", "no text in UTF-8"
BAD: dict[str, tuple[str, bytes, str]] = {
    "no labels": (".npz", save_npz(logits=LOGITS), 'no labels: expected an array or column named "labels"'),
    "labels twice": (".npz", save_npz(logits=LOGITS, label=LABELS, labels=LABELS), "There are labels in"),
    "two label columns": (".csv", b"label,a,b,label\n1,0.5,0.2,0\n", "There are labels in"),
    "label columns that differ in case": (".csv", b"label,a,b,Label\n1,0.5,0.2,0\n", "There are labels in"),
    "labels alone": (".npz", save_npz(labels=LABELS), "holds no logits. Save logits"),
    "no head": (".npz", save_npz(a=LOGITS, b=LOGITS, labels=LABELS), 'Name the logits of the network itself "head"'),
    "an extra array": (".npz", save_npz(head=LOGITS, ids=LABELS, labels=LABELS), "holds ids [400] among several"),
    "one dimension": (".npz", save_npz(logits=LOGITS[:, 0], labels=LABELS), "expected logits [n, classes] or"),
    "other rows": (".npz", save_npz(head=LOGITS, a=LOGITS[1:], labels=LABELS), 'member "a" has shape [399, 3]'),
    "few labels": (".npz", save_npz(logits=LOGITS, labels=LABELS[1:]), "expected [400], one label for each row"),
    "a class too many": (".npz", save_npz(logits=LOGITS, labels=LABELS + 1), "expected 0 to 2"),
    "NaN": (".npz", save_npz(logits=LOGITS * np.nan, labels=LABELS), "hold NaN in row 0"),
    "words": (".npz", save_npz(logits=LOGITS.astype(str), labels=LABELS), "expected numbers"),
    "a dtype that torch lacks": (".npz", save_npz(logits=LOGITS.astype("V8"), labels=LABELS), "expected numbers"),
    "objects": (".npz", save_npz(logits=LOGITS.astype(object), labels=LABELS), "no archive of plain arrays"),
    "no archive": (".npz", b"nothing", "is damaged, or no archive of plain arrays"),
    "broken archive": (".npz", save_npz(logits=LOGITS, labels=LABELS)[:900], "is damaged"),
    "broken tensors": (".safetensors", b"nothing", "is damaged, or no .safetensors file"),
    "an array that claims terabytes": (".npy", npy_header("(1000000000000, 10)"), "is damaged, or no plain array"),
    "a header that is no literal": (".npy", npy_header("(" * 9000), "is damaged, or no plain array"),
    "UTF-16": (".csv", "label,a,b\n1,0.5,0.2\n".encode("utf-16"), NO_TEXT),
    "UTF-16 without a mark": (".csv", "1,0.5\n".encode("utf-16-le"), NO_TEXT),
    "an endless cell": (".csv", b'"' + b"1" * 200_000, "field larger than"),
    "an empty table": (".csv", b"\n", "is empty."),
    "only a header": (".csv", b"label,a,b\n", "is empty below its header"),
    "an index": (".csv", b",label,a,b\n0,1,0.5,0.2\n", "has a column without name: a row number is no logit"),
    "an id": (".csv", b"id,label,a,b\n7,1,0.5,0.2\n", "has id: a row number is no logit"),
    "words in a table": (".csv", b"label,a,b\n1,0.5,high\n", NO_NUMBERS),
    "a ragged table": (".csv", b"label,a,b\n1,0.5,0.2\n0,0.1\n", NO_NUMBERS),
    "a half label": (".csv", b"label,a,b\n0.5,0.5,0.2\n", "label 0.5 in row 0; expected whole class numbers"),
    "a label beyond all classes": (".csv", b"label,a,b\n1e300,0.5,0.2\n", "label 1e+300 in row 0; expected whole"),
    "an unknown kind": (".pkl", b"", "cannot read .pkl. Known: .npz, .npy, .safetensors, .csv."),
}


@pytest.mark.parametrize("fault", BAD)
def test_unreadable_files_are_explained(tmp_path: Path, fault: str) -> None:
    suffix, content, message = BAD[fault]
    path = tmp_path / f"saved{suffix}"
    path.write_bytes(content)
    printed = error_of("fit", path)
    assert message in printed
    assert str(path) in printed
    assert "--debug" not in printed


def test_fit_finds_the_temperature_of_the_library_and_saves_it(tmp_path: Path) -> None:
    logits, labels = draw()
    write(tmp_path / "holdout.npz", logits, labels)
    output = tmp_path / "fitted.safetensors"
    result = run("fit", tmp_path / "holdout.npz", "-o", output, "--json")
    assert result.stderr == f"Wrote {output}, {output.stat().st_size:,} bytes.\n"
    found, expected = json.loads(result.stdout), lates.TemperatureScaling().fit(logits, labels)
    assert found["temperature"] == pytest.approx(expected.temperature_, rel=1e-12)
    assert found["fit"]["certified"]
    assert found["residual"] == lates.fit_stack({"head": logits}, labels).residual
    before_and_after = logits, expected.calibrated_logits(logits)
    assert [found["fit"]["nll_before"], found["fit"]["nll"]] == pytest.approx(
        [lates.metrics.nll(values, labels) for values in before_and_after]
    )
    before, after = (lates.metrics.ece(values, labels) for values in before_and_after)
    assert found["ece"] == pytest.approx({"before": before, "after": after})
    inspected = results_of("inspect", output)
    assert all(inspected[name] == found[name] for name in ("members", "temperature", "fit"))
    lines = run("fit", tmp_path / "holdout.npz").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"log-loss on the hold-out, 400 rows:", "fitted to nll: the optimum, certified"} <= set(lines)
    assert lines[-2].startswith("temperature ")
    assert lines[-1] == f"ECE there: {before:.4f} before, {after:.4f} after. Evaluate on other rows."


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--loss", "brier"], {"loss": "brier"}),
        (["--regularise", "0.5"], {"regularise": 0.5}),
    ],
)
def test_fit_finds_the_stack_of_the_library(tmp_path: Path, arguments: list[str], options: dict[str, Any]) -> None:
    members, labels, _ = two_signals(ROWS, CLASSES, silent=1)
    named: dict[str, Any] = {"a": members[0].numpy(), "b": members[1].numpy(), "head": members[2].numpy()}
    np.savez(tmp_path / "m.npz", **named, labels=labels.numpy())
    found = results_of("fit", tmp_path / "m.npz", *arguments)
    expected = lates.LogitStack(**options).fit(named, labels.numpy())
    weights = {member["name"]: member["weight"] for member in found["members"]}
    assert weights == pytest.approx(dict(zip(named, expected.weights_.tolist(), strict=True)))
    assert found["temperature"] is None
    alone = results_of("fit", tmp_path / "m.npz", "--method", "temperature")
    assert [member["name"] for member in alone["members"]] == ["head"]


def test_a_stack_of_the_head_alone_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "holdout.npz", *draw())
    printed = error_of("fit", tmp_path / "holdout.npz", "--method", "stack")
    assert "holds the head alone; a stack needs further members" in printed


def test_evaluate_measures_saved_logits_before_and_after(tmp_path: Path) -> None:
    write(tmp_path / "holdout.npz", *draw(seed=0))
    logits, labels = draw(seed=1)
    write(tmp_path / "test.csv", logits, labels)
    run("fit", tmp_path / "holdout.npz", "-o", tmp_path / "fitted.safetensors")
    evaluate = ["evaluate", tmp_path / "test.csv", "--fitted", tmp_path / "fitted.safetensors"]
    [one] = results_of(*evaluate)["sets"]
    after = lates.TemperatureScaling().fit(*draw(seed=0)).calibrated_logits(logits)
    for method, values in (("logits", logits), ("temperature", after)):
        for metric in ("accuracy", "nll", "brier", "ece"):
            expected = lates.metrics.bootstrap(getattr(lates.metrics, metric), values, labels)
            assert one["measured"][method][metric] == pytest.approx(vars(expected), abs=1e-9)
    assert one["differences"]["temperature"]["logits"]["nll"]["high"] < 0
    table = run(*evaluate).stdout
    assert "* better, ! worse than logits beyond chance" in table
    assert max(map(len, table.splitlines())) <= 80


def test_a_fitted_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    fit = {"loss": "nll", "rows": 400, "classes": 3, "nll": 0.8, "nll_before": 0.9, "certified": True, "bounded": False}
    fitted = {"names": ["head"], "weights": [0.5], **fit}
    write_calibration(tmp_path / "fitted", {"weights": torch.tensor([0.5]).double()}, {"fitted": fitted})
    contents = results_of("inspect", tmp_path / "fitted")
    assert (contents["temperature"], contents["fit"]["nll_before"]) == (2, 0.9)


@pytest.mark.parametrize("fields", [{}, {"weights": 3}, []], ids=["none", "few", "a list"])
def test_damaged_weights_are_refused(tmp_path: Path, fields: Any) -> None:
    write_calibration(tmp_path / "fitted.safetensors", {"weights": torch.ones(1)}, {"fitted": fields})
    write(tmp_path / "test.npz", *draw())
    printed = error_of("evaluate", tmp_path / "test.npz", "--fitted", tmp_path / "fitted.safetensors")
    assert "fitted.safetensors are damaged (" in printed
    assert "Fit again." in printed


def test_members_without_weights_are_measured_but_not_compared(tmp_path: Path) -> None:
    members, labels, _ = two_signals(ROWS, CLASSES, silent=0)
    np.savez(tmp_path / "m.npz", a=members[0].numpy(), head=members[1].numpy(), labels=labels.numpy())
    [one] = results_of("evaluate", tmp_path / "m.npz")["sets"]
    assert list(one["measured"]) == ["a", "head"]
    assert one["differences"] == {"a": {}, "head": {}}
    assert "beyond chance" not in run("evaluate", tmp_path / "m.npz").stdout


def test_weights_for_other_logits_are_refused(tmp_path: Path) -> None:
    members, labels, _ = two_signals(ROWS, CLASSES, silent=0)
    np.savez(tmp_path / "m.npz", a=members[0].numpy(), head=members[1].numpy(), labels=labels.numpy())
    run("fit", tmp_path / "m.npz", "-o", tmp_path / "stack.safetensors")
    write(tmp_path / "test.npz", *draw())
    write(tmp_path / "narrow.npz", LOGITS[:, :2], LABELS.clip(max=1))
    run("fit", tmp_path / "test.npz", "-o", tmp_path / "temperature.safetensors")
    np.savez(tmp_path / "other.npz", b=members[0].numpy(), head=members[1].numpy(), labels=labels.numpy())
    for arguments, message in {
        (
            "other.npz",
            "--fitted",
            tmp_path / "stack.safetensors",
        ): "The members are b, head; this stack was fitted to a, head.",
        (
            "narrow.npz",
            "--fitted",
            tmp_path / "temperature.safetensors",
        ): 'Member "head" has shape [400, 2]; expected [400, 3]',
        ("stack.safetensors",): "if `lates fit` wrote it, pass saved logits first and this file as --fitted",
        (
            "stack.safetensors",
            "--model",
            "any:model",
            "--data",
            "any:data",
        ): "holds weights for saved logits, by `lates fit`; expected a file written by `lates calibrate`",
    }.items():
        assert message in error_of("evaluate", tmp_path / arguments[0], *arguments[1:])


def test_numbers_without_a_json_form_are_null(tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", logits=np.array([[1.0, 0.0], [0.0, 1.0]] * 20), labels=np.array([1, 0] * 20))
    found = results_of("fit", tmp_path / "wrong.npz")
    assert found["temperature"] is None
    assert found["members"][0]["weight"] == 0


def test_control_sequences_in_the_names_of_members_do_not_reach_the_terminal(tmp_path: Path) -> None:
    members, labels, _ = two_signals(ROWS, CLASSES, silent=0)
    evil = "\x1b[2Ja\r\nb\x9b\u202e"
    stored: dict[str, Any] = {evil: members[0].numpy(), "head": members[1].numpy(), "labels": labels.numpy()}
    headless: dict[str, Any] = {evil: LOGITS, "b": LOGITS, "labels": LABELS}
    np.savez(tmp_path / "m.npz", **stored)
    np.savez(tmp_path / "other.npz", head=members[1].numpy(), labels=labels.numpy())
    np.savez(tmp_path / "headless.npz", **headless)
    fitted = tmp_path / "stack.safetensors"
    for command in (
        ["fit", "m.npz", "-o", fitted],
        ["inspect", fitted],
        ["inspect", fitted, "--json"],
        ["evaluate", "m.npz"],
        ["evaluate", "other.npz", "--fitted", fitted],
        ["fit", "headless.npz"],
    ):
        result = run(command[0], tmp_path / command[1], *command[2:])
        assert "1b[2Ja" in result.output
        assert not {"\x1b", "\r", "\x9b", "\u202e"} & {*result.output}
    stack = lates.LogitStack().fit({evil: members[0], "head": members[1]}, labels).stack_
    assert "\x1b" not in "".join(member_table(stack, {}))
