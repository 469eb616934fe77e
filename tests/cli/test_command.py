"""The command `lates`: its help, its version, and `lates demo`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

import lates
from lates.cli.table import short
from tests.cli.commands import error_of, results_of, run

COMMANDS = ("demo", "calibrate", "evaluate", "report", "export", "inspect", "fit")


def test_version_is_that_of_the_package() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout.strip()) == (0, f"lates {lates.__version__}")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_shows_examples_in_80_columns(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.strip().startswith(" ".join(("lates", *command))) for line in lines) or command in ((), ("demo",))
    assert all(name in result.stdout for name in (COMMANDS if not command else ()))
    assert not command or "<bool>" not in result.stdout
    if command in (("evaluate",), ("report",), ("export",)):
        assert "--checkpoint weights.pt" in result.stdout


def test_help_does_not_import_torch() -> None:
    code = "import sys; from lates.cli import app; app(['--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(Path(lates.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "calibrate" in result.stdout


MODEL, DATA = ["--model", "a_module:make"], ["--data", "a_module:make"]
CALIBRATE = ["calibrate", *DATA, "-o", "new.safetensors"]
EXPORT = ["export", "old.safetensors", *MODEL, *DATA, "--check", "-o"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dem"], "dem"),
        (["demo", "--sed", "1"], "--sed"),
        (["demo", "--seed", "-1"], "--seed"),
        ([*CALIBRATE, *MODEL, "--budget", "much"], '--budget: "much": expected a share'),
        ([*CALIBRATE, *MODEL, "--memory", "lots"], '--memory: "lots": expected a number of bytes'),
        ([*CALIBRATE, *MODEL, "--loss", "hinge"], "--loss"),
        ([*CALIBRATE, *MODEL, "--blocks", "last:few"], '--blocks: "last:few": expected a number'),
        (["calibrate", *MODEL, "--data", "a_module", "-o", "new"], '--data: "a_module": expected module:function'),
        ([*EXPORT, "new.zip"], "--output: new.zip: expected a name ending in .onnx or .pt2."),
        ([*EXPORT, "new.pt2"], "--check: works for .onnx only."),
        (["evaluate", "test.npz", *MODEL], "--data: --model and --data go together."),
        (["evaluate", "test.npz", *DATA], "--model: --model and --data go together."),
        (["evaluate", "test.npz", *MODEL, *DATA, "--labels", "labels.npy"], "is for saved logits, without --model."),
        (["evaluate", "test.npz", *MODEL, *DATA, "--fitted", "fitted"], "is for saved logits, without --model."),
    ],
)
def test_wrong_usage_exits_with_2_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The page of a demo that trained its network, and what it printed; it overwrote a page."""
    page = tmp_path_factory.mktemp("demo") / "page.html"
    page.write_text("old")
    return page, run("demo", "--train", "--seed", "5", "--quick", "--report", page, "--force")


def test_demo_prints_a_table_in_80_columns_and_links_its_page(demo: tuple[Path, Result]) -> None:
    page, result = demo
    assert result.exit_code == 0, result.output
    *lines, link = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for method in ("network as is", "temperature scaling", "LATES ", "LATES, no views"):
        assert sum(line.startswith(f"  {method}") for line in lines) == 4
    assert link == page.as_uri()
    html = page.read_text("utf-8")
    assert all(words in html for words in ("Fashion-MNIST", "Ankle boot", "contrast"))


def test_demo_prints_the_numbers_of_its_table_as_json(demo: tuple[Path, Result]) -> None:
    _, table = demo
    numbers = results_of("demo", "--train", "--seed", "5", "--quick", "--no-report")
    assert numbers["images"] == {"train": 1000, "holdout": 333, "test": 666}
    assert list(numbers["comparisons"]) == ["as they are", "noise", "contrast", "blur"]
    for found in numbers["comparisons"].values():
        for measured in found["measured"].values():
            for metric in ("accuracy", "ece", "nll", "brier"):
                assert short(measured[metric]["value"]) in table.stdout
        assert found["differences"]["LATES"]["temperature scaling"]["nll"]["confidence"] == 0.95


def test_demo_overwrites_its_own_page_but_none_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lates-demo-report.html").write_text("of last time")
    assert run("demo", "--quick").exit_code == 0
    assert "Fashion-MNIST" in Path("lates-demo-report.html").read_text("utf-8")
    Path("named").write_text("precious")
    printed = error_of("demo", "--quick", "--report", "named")
    assert printed == "Error: named exists already. Pass --force to overwrite it, or name another file.\n"
    assert "exists already" in error_of("demo", "--quick", "--report", "lates-demo-report.html")
    assert Path("named").read_text() == "precious"
