"""`lates` on a user's own module: calibrate, evaluate, inspect, report, export; what comes out, and how it fails."""

import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

import lates
from lates.cli import app
from lates.cli.sources import find_named
from tests.cli_problem import MODULE, Folder, make_folder
from tests.terminal import start_command, wait_until_told

runner = CliRunner(env={"COLUMNS": "80", "LATES_DEBUG": "", "TERM": "dumb"})
CALIBRATION = "their.lates.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("theirs"))


@pytest.fixture
def folder(made: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The user's module can be imported; the current folder is empty."""
    monkeypatch.syspath_prepend(made.path)
    monkeypatch.chdir(tmp_path)
    return made


def run(*arguments: object) -> Result:
    return runner.invoke(app, [str(argument) for argument in arguments])


def sources(folder: Folder, model: str = "make_model", data: str = "make_loaders") -> list[object]:
    return ["--model", folder.name(model), "--checkpoint", folder.weights, "--data", folder.name(data)]


def calibrate(folder: Folder, *more: object, output: str = CALIBRATION) -> Result:
    return run("calibrate", *sources(folder), "-o", output, "--budget", "none", *more)


def their(folder: Folder) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The same network and loaders, made in Python."""
    module = import_module(MODULE)
    network = module.make_model()
    network.load_state_dict(torch.load(folder.weights, weights_only=True))
    return network.eval(), module.make_loaders()


def gathered(model: torch.nn.Module, loader: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        rows = [(model(inputs), labels) for inputs, labels in loader]
    return torch.cat([logits for logits, _ in rows]), torch.cat([labels for _, labels in rows])


def test_calibrate_writes_what_the_library_would_and_says_where(folder: Folder) -> None:
    result = calibrate(folder)
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    expected = lates.calibrate(network, train=loaders["train"], holdout=loaders["holdout"], budget=None, progress=False)
    loaded = lates.load(CALIBRATION, network)
    assert loaded.weights == expected.weights
    assert result.stdout == f"{expected}\n"
    assert result.stderr.startswith(f"Wrote {CALIBRATION}, ")
    assert f"lates evaluate {CALIBRATION} --model their_module:make_model --checkpoint" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--blocks", "last:1", "--views", "none"], {"blocks": 1, "views": None}),
        (["--blocks", "first.1, second.1", "--loss", "brier"], {"blocks": ["first.1", "second.1"], "loss": "brier"}),
        (["--blocks", "none"], {"blocks": []}),
        (["--budget", "20%", "--memory", "1K", "--seed", "3"], {"budget": 0.2, "memory": 1024, "seed": 3}),
        (["--views", "their_module:mirror", "--passes", "2"], {"views": lambda rows: -rows, "passes": 2}),
        (["--paper"], {"settings": lates.PAPER, "views": "auto"}),
    ],
)
def test_options_mean_what_they_mean_in_python(folder: Folder, arguments: list[str], options: dict[str, Any]) -> None:
    if "--paper" in arguments:
        arguments, options = [*arguments, "--views", "none"], {**options, "views": None}
    result = calibrate(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    options = {"budget": None, **options}
    expected = lates.calibrate(network, train=loaders["train"], holdout=loaders["holdout"], progress=False, **options)
    printed = {member["name"]: member["weight"] for member in json.loads(result.stdout)["members"]}
    assert printed == pytest.approx(expected.weights)


def test_temperature_scaling_needs_no_training_split(folder: Folder) -> None:
    options = ["-o", CALIBRATION, "--json"]
    refused = run("calibrate", *sources(folder, data="make_holdout"), *options)
    assert refused.exit_code == 1
    assert "pass train=" in refused.stderr
    result = run("calibrate", *sources(folder, data="make_holdout"), *options, "--blocks", "none")
    assert [member["name"] for member in json.loads(result.stdout)["members"]] == ["head"]


def test_evaluate_measures_network_temperature_and_lates_on_every_test_set(folder: Folder) -> None:
    calibrate(folder)
    result = run("evaluate", CALIBRATION, *sources(folder), "--json")
    assert result.exit_code == 0, result.output
    network, loaders = their(folder)
    calibrated = lates.load(CALIBRATION, network)
    sets = json.loads(result.stdout)["sets"]
    assert [(one["name"], one["rows"], one["classes"]) for one in sets] == [("plain", 500, 4), ("noisy", 400, 4)]
    for one in sets:
        logits, labels = gathered(network, loaders["test"][one["name"]])
        cooled = logits * calibrated.fit.temperature_weights[0]
        stacked, _ = gathered(calibrated, loaders["test"][one["name"]])
        for method, own in (("network", logits), ("temperature", cooled), ("lates", stacked)):
            summary = lates.metrics.summary(own, labels)
            for metric in ("accuracy", "nll", "brier", "ece"):
                found = one["measured"][method][metric]
                assert found["value"] == pytest.approx(summary[metric], abs=1e-5)
                assert found["low"] <= found["value"] <= found["high"]
            assert one["auc"][method] == pytest.approx(summary["auc"], abs=1e-5)
            assert one["ece_floor"][method] == pytest.approx(summary["ece_floor"], abs=1e-4)
        gain = one["differences"]["temperature"]["nll"]["value"]
        assert gain == pytest.approx(lates.metrics.nll(stacked, labels) - lates.metrics.nll(cooled, labels), abs=1e-5)


def test_evaluate_prints_a_table_of_80_columns(folder: Folder) -> None:
    calibrate(folder)
    result = run("evaluate", CALIBRATION, *sources(folder))
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith(" classes")] == [
        "plain, 500 rows, 4 classes",
        "noisy, 400 rows, 4 classes",
    ]
    for method in ("network", "temperature", "LATES"):
        assert sum(line.startswith(f"  {method} ") for line in lines) == 2
    assert "* LATES better, ! worse than temperature by more than chance (paired); of" in lines


@pytest.mark.parametrize(
    "command",
    [("evaluate",), ("report", "-o", "page.html"), ("export", "-o", "their.onnx"), ("export", "-o", "their.pt2")],
)
def test_a_forgotten_checkpoint_is_an_error(folder: Folder, command: tuple[str, ...]) -> None:
    calibrate(folder)
    name, *output = command
    untrained = ["--model", folder.name("make_model"), "--data", folder.name("make_loaders")]
    result = run(name, CALIBRATION, *output, *untrained)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "weights differ from those it was calibrated with. Did you forget --checkpoint?" in result.stderr
    assert [path.name for path in Path().iterdir()] == [CALIBRATION]


def test_other_weights_than_at_calibration_are_judged_when_asked_for(folder: Folder) -> None:
    calibrate(folder)
    untrained = ["--model", folder.name("make_model"), "--data", folder.name("make_loaders")]
    result = run("evaluate", CALIBRATION, *untrained, "--other-weights")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Warning: 6 of 6 tensors of this network have other values")
    assert "trained weights were never loaded" in result.stderr


@pytest.mark.parametrize("command", ["evaluate", "report", "export"])
def test_the_examples_load_the_checkpoint(command: str) -> None:
    assert "--checkpoint weights.pt" in run(command, "--help").stdout


@pytest.mark.parametrize(("model", "copies"), [("make_ensemble", 2), ("make_dropout", 1)])
def test_ensembles_and_mc_dropout(folder: Folder, model: str, copies: int) -> None:
    own = ["--model", folder.name(model), "--data", folder.name("make_loaders")]
    own += ["--checkpoint", str(folder.weights)] * copies
    assert run("calibrate", *own, "-o", CALIBRATION, "--budget", "none").exit_code == 0
    result = run("evaluate", CALIBRATION, *own, "--json")
    plain = json.loads(result.stdout)["sets"][0]["measured"]
    assert plain["lates"]["nll"]["value"] < plain["network"]["nll"]["value"]
    contents = json.loads(run("inspect", CALIBRATION, "--json").stdout)
    assert (len(contents["networks"]), contents["samples"]) == (copies, 1 if copies == 2 else 3)
    assert sum(member["contribution"] for member in contents["members"]) == pytest.approx(1)
    assert max(map(len, run("inspect", CALIBRATION).stdout.splitlines())) <= 80


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


def test_json_says_whether_the_weights_stopped_at_their_cap(folder: Folder) -> None:
    fit = json.loads(calibrate(folder, "--json").stdout)["fit"]
    assert fit["at_cap"] is False
    assert "bounded" not in fit


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


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ("no_such_module:make", "make_loaders", 'there is no module "no_such_module" in'),
        (
            "make_modle",
            "make_loaders",
            'module "their_module" has no "make_modle". Did you mean "make_model"? It has Network, draw,',
        ),
        ("make_trouble", "make_loaders", "raised RuntimeError: the disk is full of cats"),
        ("make_nothing", "make_loaders", "gave no network. Expected an nn.Module, mc_dropout(…) or a list"),
        ("make_wide", "make_loaders", "other shape: first.0.weight is [24, 6], expected [32, 6]"),
        ("make_ensemble", "make_loaders", "gave 2 network(s); --checkpoint came 1 time(s)"),
        ("make_model", "make_validation", "gave keys train, validation. Expected"),
        ("make_model", "make_nothing", "gave a str. Expected"),
        ("make_model", "make_number", "gave a int as holdout. Expected"),
        ("make_model", "make_once", "can be read only once"),
    ],
)
def test_what_the_user_s_code_gives_is_checked(folder: Folder, model: str, data: str, message: str) -> None:
    named = [name if ":" in name else folder.name(name) for name in (model, data)]
    options = ["--model", named[0], "--data", named[1], "--checkpoint", folder.weights, "-o", CALIBRATION]
    result = run("calibrate", *options)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith(
        ("Error: --model", "Error: --data", "Error: The holdout", f"Error: {folder.weights}")
    )
    assert "Traceback" not in result.stderr
    assert list(Path().iterdir()) == []


def test_what_the_user_s_code_prints_does_not_mix_with_results(folder: Folder) -> None:
    result = run("calibrate", *sources(folder, model="make_talker"), "-o", CALIBRATION, "--blocks", "none", "--json")
    assert json.loads(result.stdout)["file"] == CALIBRATION
    assert result.stderr.startswith("loading …\n")


def test_a_file_s_path_names_its_module_too(folder: Folder) -> None:
    file = folder.path / f"{MODULE}.py"
    options = ["--model", f"{file}:make_model", "--checkpoint", folder.weights, "--data", f"{file}:make_loaders"]
    result = run("calibrate", *options, "-o", CALIBRATION, "--blocks", "none")
    assert result.exit_code == 0, result.output


def test_a_path_means_that_file_and_no_other_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "beside.py").write_text("HERE = 'above'")
    for place, value in {
        "named_alike.py": "beside.HERE",
        "below/named_alike.py": "'below'",
        "json.py": "'json'",
    }.items():
        (tmp_path / place).write_text(f"import beside\n\nWHERE = {value}\n")
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert find_named("../named_alike.py:WHERE", "--model") == "above"
    assert find_named("named_alike.py:WHERE", "--model") == "below"
    assert find_named("./named_alike.py:WHERE", "--model") == "below"
    assert find_named(f"{tmp_path}/json.py:WHERE", "--model") == "json"
    assert find_named("../named_alike.py:WHERE", "--model") == "above"
    with pytest.raises(ValueError, match=r"--model \.\./nowhere\.py:f: there is no file .*nowhere\.py\."):
        find_named("../nowhere.py:f", "--model")


def test_missing_loaders_are_named(folder: Folder) -> None:
    calibrate(folder)
    result = run("evaluate", CALIBRATION, *sources(folder, data="make_holdout"))
    assert result.exit_code == 1
    assert "gave holdout; this command needs test." in result.stderr


def test_a_bare_number_is_a_block_s_name_and_never_a_count(folder: Folder) -> None:
    result = run("calibrate", *numbered(folder), "--blocks", "0", "--json")
    assert result.exit_code == 0, result.output
    assert [member["name"] for member in json.loads(result.stdout)["members"]] == ["0", "head"]
    for text, advice in {"2": "last:2 takes the last 2", "last:few": "expected a number"}.items():
        refused = calibrate(folder, "--blocks", text, output="other.safetensors")
        assert refused.exit_code == 2
        assert advice in " ".join(refused.stderr.replace("│", "").split())


def numbered(folder: Folder) -> list[object]:
    """A network whose blocks are named 0, 1, …"""
    text = "from torch import nn\n\n\ndef make():\n    return nn.Sequential("
    text += "nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 4))\n"
    Path("numbered.py").write_text(text)
    return ["--model", "numbered.py:make", "--data", folder.name("make_loaders"), "-o", CALIBRATION, "--budget", "none"]


def test_a_wrong_block_is_answered_with_the_right_ones(folder: Folder) -> None:
    result = calibrate(folder, "--blocks", "layer9")
    assert result.exit_code == 1
    assert result.stderr == 'Error: Unknown block "layer9". Blocks of this model: first.1, second.1.\n'


@pytest.mark.parametrize(
    ("option", "value"),
    [("--budget", "much"), ("--memory", "lots"), ("--loss", "hinge"), ("--model", "their_module")],
)
def test_wrong_values_exit_with_2(folder: Folder, option: str, value: str) -> None:
    result = calibrate(folder, option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert value in result.stderr


@pytest.mark.parametrize("device", ["gpu", "cuda:77"])
def test_a_device_that_is_not_there_is_named(folder: Folder, device: str) -> None:
    result = calibrate(folder, "--device", device)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: --device {device}: not usable here (")


def test_evaluate_wants_model_and_data_together(folder: Folder) -> None:
    assert run("evaluate", CALIBRATION, "--model", folder.name("make_model")).exit_code == 2
    calibrate(folder)
    alone = run("evaluate", CALIBRATION)
    assert alone.exit_code == 1
    assert "is a calibration. Pass its network and data too" in alone.stderr
    both = run("evaluate", CALIBRATION, *sources(folder), "--labels", "labels.npy")
    assert both.exit_code == 2


def test_interrupted_while_writing_the_old_file_stays(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrate(folder)
    before = Path(CALIBRATION).read_bytes()

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    result = calibrate(folder, "--force", "--seed", "1")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Stopped.\n")
    assert Path(CALIBRATION).read_bytes() == before
    assert list(Path().iterdir()) == [Path(CALIBRATION)]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_a_real_ctrl_c_stops_at_once_and_leaves_no_file(made: Folder) -> None:
    """The training loader never ends; the signal is sent when the bar over it appears."""
    before = sorted(path.name for path in made.path.iterdir())
    options = ["--model", "their_module:make_model", "--data", "their_module:make_endless", "-o", CALIBRATION]
    process = start_command(["calibrate", *options], made.path)
    try:
        wait_until_told(process, b"train")
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    finally:
        process.kill()  # one that does not stop would read for ever
    assert process.returncode == 130
    assert out == b""
    assert b"Stopped." in rest
    assert b"Traceback" not in rest
    assert sorted(path.name for path in made.path.iterdir() if path.name != "__pycache__") == [
        name for name in before if name != "__pycache__"
    ]
