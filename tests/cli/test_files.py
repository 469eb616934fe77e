"""`lates inspect`, `report` and `export`: what they say about a calibration and make of it; which outputs are refused."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lates
from tests.cli.commands import CALIBRATION, calibrate, error_of, results_of, run, sources, their
from tests.cli_problem import Folder


def test_inspect_agrees_with_the_calibrated_model_without_the_network(folder: Folder) -> None:
    calibrate(folder)
    calibrated = lates.load(CALIBRATION, their(folder)[0])
    contents = results_of("inspect", CALIBRATION)
    for key, expected in {
        "weight": calibrated.weights,
        "contribution": calibrated.contributions,
        "spread": calibrated.spread,
    }.items():
        assert {member["name"]: member[key] for member in contents["members"]} == pytest.approx(expected)
    assert contents["added_parameters"] == calibrated.added_parameters > 0
    assert contents["fit"]["nll"] == calibrated.fit.nll
    assert contents["networks"][0]["numbers"] == 6 * 24 + 24 + 24 * 24 + 24 + 24 * 4 + 4
    text = run("inspect", CALIBRATION).stdout
    assert f"{calibrated.added_parameters:,} parameters added" in text
    assert "24 features" in text


def test_inspect_refuses_a_checkpoint(folder: Folder) -> None:
    printed = error_of("inspect", folder.weights)
    assert f"{folder.weights} is no calibration" in printed
    assert "is not a whole safetensors file" in printed


def test_report_writes_a_page_and_prints_its_link(folder: Folder) -> None:
    calibrate(folder)
    Path("names.txt").write_text("cat\nlynx\nocelot\nserval\n\n\n", "utf-8")
    options = ["-o", "page.html", "--title", "Their <own> network", "--class-names"]
    result = run("report", CALIBRATION, *sources(folder), *options, "names.txt")
    assert result.exit_code == 0, result.output
    page = Path("page.html")
    assert result.stdout == f"{page.resolve().as_uri()}\n"
    text = page.read_text("utf-8")
    assert all(words in text for words in ("ocelot", "Their &lt;own&gt; network", "noisy"))
    assert "Their <own> network" not in text
    missing = error_of("report", CALIBRATION, *sources(folder), *options, "nowhere.txt", "--force")
    assert missing == "Error: --class-names nowhere.txt: there is no such file.\n"
    Path("names.txt").write_text("cat\nlynx\nocelot\nserval\n", "utf-16")
    unreadable = error_of("report", CALIBRATION, *sources(folder), *options, "names.txt", "--force")
    assert unreadable.startswith("Error: --class-names names.txt: no text in UTF-8 (")


def test_export_writes_an_onnx_file_that_agrees(folder: Folder) -> None:
    calibrate(folder)
    Path("their.onnx").symlink_to("elsewhere")
    export = ["export", CALIBRATION, *sources(folder), "-o", "their.onnx", "--check"]
    checks = results_of(*export)["checks"]
    assert [check["rows"] for check in checks] == [1, 100, 102]
    assert all(check["difference"] <= 1e-5 for check in checks)
    assert Path("their.onnx").is_symlink()
    assert Path("elsewhere").stat().st_size > 0
    text = run(*export, "--force").stdout
    assert "probabilities differ by at most" in text
    assert max(map(len, text.splitlines())) <= 80


def test_export_keeps_no_graph_that_fails_its_check(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate(folder)
    Path("their.onnx").write_text("precious")
    monkeypatch.setattr("lates.export.TOLERANCE", -1.0)
    printed = error_of("export", CALIBRATION, *sources(folder), "-o", "their.onnx", "--check", "--force")
    assert printed.startswith("Error: The exported graph does not compute what the model computes: on 1 rows")
    assert Path("their.onnx").read_text() == "precious"
    assert sorted(path.name for path in Path().iterdir()) == [CALIBRATION, "their.onnx"]


def test_export_misses_the_runtime_before_any_work(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    printed = error_of("export", "not-yet.safetensors", *sources(folder), "-o", "their.onnx", "--check")
    assert printed.startswith("Error: ONNX needs onnxruntime")


def test_export_writes_a_program_that_agrees(folder: Folder) -> None:
    calibrate(folder)
    result = run("export", CALIBRATION, *sources(folder, data="make_tuple"), "-o", "their.pt2")
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    inputs = next(iter(loaders["holdout"]))[0][:7]
    expected = lates.load(CALIBRATION, network)(inputs)
    torch.testing.assert_close(torch.export.load("their.pt2").module()(inputs), expected)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(
    ("command", "output", "option"),
    [
        (["calibrate"], "pipe", "-o"),
        (["report", "not-yet.safetensors"], "pipe", "-o"),
        (["export", "not-yet.safetensors"], "pipe.onnx", "-o"),
        (["fit", "not-yet.npz"], "pipe", "-o"),
        (["demo"], "pipe", "--report"),
    ],
)
def test_outputs_that_are_no_file_are_refused_before_any_work(
    folder: Folder, command: list[str], output: str, option: str
) -> None:
    os.mkfifo(output)
    given = [] if command[0] in ("fit", "demo") else sources(folder)
    for path, message in ((output, "it is a pipe"), (f"/proc/{output}", "")):
        printed = error_of(*command, *given, option, path, "--force")
        assert printed.startswith(f"Error: Cannot save to {path}: {message}")
    assert Path(output).is_fifo()


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (["calibrate"], "weights"),
        (["report", CALIBRATION], CALIBRATION),
        (["report", CALIBRATION, "--class-names", "names.txt"], "names.txt"),
        (["export", "kept.onnx"], "kept.onnx"),
        (["fit", "holdout.npz"], "holdout.npz"),
        (["fit", "logits.npy", "--labels", "labels.npy"], "labels.npy"),
    ],
)
def test_an_input_is_never_overwritten_by_the_output(folder: Folder, command: list[str], given: str) -> None:
    path = Path(folder.weights if given == "weights" else given)
    if not path.exists():
        path.write_text("precious")
    before, more = path.read_bytes(), [] if command[0] == "fit" else sources(folder)
    link = Path(f"link{path.suffix}")
    link.symlink_to(path)
    for output in (path, link):
        printed = error_of(*command, *more, "-o", output, "--force")
        assert printed.startswith(f"Error: {output} is an input of this command")
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["calibrate", "report", "export", "fit"])
def test_existing_files_are_overwritten_only_with_force(folder: Folder, command: str) -> None:
    calibrate(folder)
    output = "kept.pt2" if command == "export" else "kept"
    np.savez("holdout.npz", logits=np.eye(4), labels=np.arange(4))
    Path(output).write_text("precious")
    first = {"calibrate": sources(folder), "fit": ["holdout.npz"]}.get(command, [CALIBRATION, *sources(folder)])
    printed = error_of(command, *first, "-o", output)
    assert printed == f"Error: {output} exists already. Pass --force to overwrite it, or name another file.\n"
    assert Path(output).read_text() == "precious"
    if command != "report":
        assert run(command, *first, "-o", output, "--force").exit_code == 0
        assert Path(output).read_bytes() != b"precious"
