"""`lates inspect`, `report` and `export`: what they tell of a calibration and make of it."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

import lates
from tests.cli.commands import CALIBRATION, calibrate, run, sources, their
from tests.cli_problem import Folder


def test_inspect_tells_without_the_network_what_the_calibrated_model_tells(folder: Folder) -> None:
    calibrate(folder)
    calibrated = lates.load(CALIBRATION, their(folder)[0])
    result = run("inspect", CALIBRATION, "--json")
    contents = json.loads(result.stdout)
    members = {member["name"]: member for member in contents["members"]}
    assert {name: member["weight"] for name, member in members.items()} == pytest.approx(calibrated.weights)
    assert {name: member["contribution"] for name, member in members.items()} == pytest.approx(calibrated.contributions)
    assert {name: member["spread"] for name, member in members.items()} == pytest.approx(calibrated.spread)
    assert contents["added_parameters"] == calibrated.added_parameters > 0
    assert contents["fit"]["nll"] == calibrated.fit.nll
    assert contents["networks"][0]["numbers"] == 6 * 24 + 24 + 24 * 24 + 24 + 24 * 4 + 4
    text = run("inspect", CALIBRATION).stdout
    assert f"{calibrated.added_parameters:,} parameters added." in text
    assert "24 features" in text


def test_inspect_reads_no_pickle(folder: Folder) -> None:
    result = run("inspect", folder.weights)
    assert result.exit_code == 1
    assert "is not a whole safetensors file" in result.stderr


def test_report_writes_a_page_and_prints_its_link(folder: Folder) -> None:
    calibrate(folder)
    Path("names.txt").write_text("cat\nlynx\nocelot\nserval\n\n\n", "utf-8")
    result = run(
        "report",
        CALIBRATION,
        *sources(folder),
        "-o",
        "page.html",
        "--title",
        "Their <own> network",
        "--class-names",
        "names.txt",
    )
    assert result.exit_code == 0, result.output
    page = Path("page.html")
    assert result.stdout == f"{page.resolve().as_uri()}\n"
    text = page.read_text("utf-8")
    assert "ocelot" in text
    assert "Their &lt;own&gt; network" in text
    assert "Their <own> network" not in text
    assert "noisy" in text


def test_inspect_says_that_a_network_s_weights_are_no_calibration(folder: Folder) -> None:
    result = run("inspect", folder.weights)
    assert result.exit_code == 1
    assert f"{folder.weights} is no calibration" in result.stderr


def test_report_says_that_the_class_names_are_missing(folder: Folder) -> None:
    result = run("report", CALIBRATION, *sources(folder), "--class-names", "nowhere.txt")
    assert (result.exit_code, result.stderr) == (1, "Error: --class-names nowhere.txt: there is no such file.\n")


def test_export_writes_an_onnx_file_that_agrees(folder: Folder) -> None:
    calibrate(folder)
    result = run("export", CALIBRATION, *sources(folder), "-o", "their.onnx", "--check", "--json")
    assert result.exit_code == 0, result.output
    checks = json.loads(result.stdout)["checks"]
    assert [check["rows"] for check in checks] == [1, 100, 102]
    assert all(check["same_top_class"] and check["difference"] <= 1e-5 for check in checks)
    assert sorted(path.name for path in Path().iterdir()) == [CALIBRATION, "their.onnx"]


def test_export_keeps_no_graph_that_fails_its_check(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate(folder)
    Path("their.onnx").write_text("precious")
    monkeypatch.setattr("lates.export.TOLERANCE", -1.0)
    result = run("export", CALIBRATION, *sources(folder), "-o", "their.onnx", "--check", "--force")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: The exported graph does not compute what the model computes: on 1 rows")
    assert Path("their.onnx").read_text() == "precious"
    assert sorted(path.name for path in Path().iterdir()) == [CALIBRATION, "their.onnx"]


def test_export_tells_at_once_what_the_check_lacks(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = run("export", "not-yet.safetensors", *sources(folder), "-o", "their.onnx", "--check")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: --check needs the package onnxruntime")


def test_export_writes_a_program_that_agrees(folder: Folder) -> None:
    calibrate(folder)
    result = run("export", CALIBRATION, *sources(folder, data="make_tuple"), "-o", "their.pt2")
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    inputs = next(iter(loaders["holdout"]))[0][:7]
    expected = lates.load(CALIBRATION, network)(inputs)
    torch.testing.assert_close(torch.export.load("their.pt2").module()(inputs), expected)


@pytest.mark.parametrize(("output", "option"), [("their.zip", "--output"), ("their.pt2", "--check")])
def test_export_refuses_what_has_no_meaning(folder: Folder, output: str, option: str) -> None:
    result = run("export", CALIBRATION, *sources(folder), "-o", output, "--check")
    assert result.exit_code == 2
    assert option in result.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(
    ("command", "suffix"), [("calibrate", ""), ("report", ""), ("export", ".onnx"), ("export", ".pt2"), ("fit", "")]
)
def test_what_is_no_file_is_refused_before_anything_is_read(folder: Folder, command: str, suffix: str) -> None:
    output = f"pipe{suffix}"
    os.mkfifo(output)
    first = [] if command == "calibrate" else ["not-yet.safetensors"]
    result = run(command, *first, *([] if command == "fit" else sources(folder)), "-o", output, "--force")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: Cannot save to {output}: it is a pipe")
    assert Path(output).is_fifo()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("options", [["--report"], ["--no-report", "--train", "--weights"]])
def test_nor_does_the_demo_replace_it(folder: Folder, options: list[str]) -> None:
    os.mkfifo("pipe")
    result = run("demo", "--quick", "--force", *options, "pipe")
    assert result.stderr.startswith("Error: Cannot save to pipe: it is a pipe")
    assert Path("pipe").is_fifo()


def test_export_follows_a_link(folder: Folder) -> None:
    calibrate(folder)
    Path("their.onnx").symlink_to("elsewhere")
    result = run("export", CALIBRATION, *sources(folder), "-o", "their.onnx", "--check")
    assert result.exit_code == 0, result.output
    assert Path("their.onnx").is_symlink()
    assert Path("elsewhere").stat().st_size > 0
    assert "probabilities differ by at most" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", ["calibrate", "report", "export"])
def test_an_existing_file_is_not_overwritten_unless_asked(folder: Folder, command: str) -> None:
    calibrate(folder)
    output = {"calibrate": "kept.safetensors", "report": "kept.html", "export": "kept.pt2"}[command]
    Path(output).write_text("precious")
    first = [] if command == "calibrate" else [CALIBRATION]
    result = run(command, *first, *sources(folder), "-o", output)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {output} exists already. Pass --force to overwrite it, or name another file.\n"
    assert Path(output).read_text() == "precious"
    if command != "report":
        assert run(command, *first, *sources(folder), "-o", output, "--force").exit_code == 0
        assert Path(output).read_bytes() != b"precious"
