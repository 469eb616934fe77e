"""The command `lates`: what it prints, what it writes, how it fails."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import Result

import lates
from tests.cli.commands import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The cache folder after a brief training by the command line, and what it printed; an old page was to go."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "page.html").write_text("old")
    arguments = ["demo", "--train", "--epochs", "1", "--seed", "5", "--quick", "--report", str(folder / "page.html")]
    return folder / "lates", run(*arguments, "--force", XDG_CACHE_HOME=str(folder))


def test_version_is_the_package_s() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout.strip()) == (0, f"lates {lates.__version__}")


COMMANDS = ("demo", "calibrate", "evaluate", "report", "export", "inspect", "fit")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_teaches_within_80_columns(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    examples = [line for line in result.stdout.splitlines() if line.strip().startswith(" ".join(("lates", *command)))]
    assert examples or not command or command == ("demo",)
    assert all(name in result.stdout for name in (COMMANDS if not command else ()))
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert not command or "<bool>" not in result.stdout


def test_without_a_command_it_shows_its_help() -> None:
    result = run()
    assert result.exit_code in (0, 2)
    assert "demo" in result.output


def test_training_writes_to_the_cache_folder_and_says_so(trained: tuple[Path, Result]) -> None:
    folder, result = trained
    assert result.exit_code == 0, result.output
    assert [file.name for file in folder.iterdir()] == ["demo-network-5.safetensors"]
    assert result.stderr == f"Wrote {folder / 'demo-network-5.safetensors'}: another than the shipped network.\n"


def test_demo_prints_its_table_in_80_columns(trained: tuple[Path, Result]) -> None:
    _, result = trained
    *lines, _ = result.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    for method in ("network as is", "temperature scaling", "LATES ", "LATES, jittered views"):
        assert sum(line.startswith(f"  {method}") for line in lines) == 4


def test_demo_ends_with_a_link_to_the_page_that_it_wrote(trained: tuple[Path, Result]) -> None:
    folder, result = trained
    page = folder.parent / "page.html"
    assert result.stdout.splitlines()[-1] == page.as_uri()
    html = page.read_text("utf-8")
    assert "LATES, jittered views" in html
    assert "Ankle boot" in html
    assert "Under shift" in html


def test_json_holds_the_numbers_of_the_table_for_the_same_weights(trained: tuple[Path, Result]) -> None:
    folder, table = trained
    weights = str(folder / "demo-network-5.safetensors")
    result = run("demo", "--quick", "--seed", "5", "--json", "--no-report", "--weights", weights)
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout)
    assert numbers["images"] == {"train": 1000, "holdout": 333, "test": 666}
    assert list(numbers["measured"]) == ["as they are", "noise", "contrast", "blur"]
    for methods in numbers["measured"].values():
        for measured in methods.values():
            assert list(measured["values"]) == ["accuracy", "ece", "nll", "brier", "auc"]
            assert all(f"{value:.4f}" in table.stdout for value in measured["values"].values())
    assert numbers["measured"]["blur"]["LATES"]["against_temperature"]["nll"]["confidence"] == 0.95


@pytest.mark.parametrize(
    "arguments", [["demo", "--epochs", "3"], ["demo", "--seed", "-1"], ["demo", "--sed", "1"], ["dem"]]
)
def test_wrong_calls_exit_with_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert arguments[-2 if len(arguments) > 1 else -1] in result.stderr


@pytest.mark.parametrize("options", [["--report"], ["--train", "--no-report", "--weights"]])
def test_demo_overwrites_no_file_that_was_named_unless_asked(tmp_path: Path, options: list[str]) -> None:
    named = tmp_path / "named"
    named.write_text("precious")
    result = run("demo", "--quick", *options, str(named))
    assert result.exit_code == 1
    assert result.stderr == f"Error: {named} exists already. Pass --force to overwrite it, or name another file.\n"
    assert named.read_text() == "precious"


def test_demo_may_overwrite_its_own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lates-demo-report.html").write_text("of last time")
    result = run("demo", "--quick", "--weights", "none.safetensors")
    assert "exists already" not in result.stderr
    assert "There is no file none.safetensors" in result.stderr


def test_an_error_is_told_in_words_and_exits_with_1(tmp_path: Path) -> None:
    missing = tmp_path / "none.safetensors"
    result = run("demo", "--weights", str(missing))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"Error: There is no file {missing}. `lates demo --train --weights {missing}` writes one.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="opens a terminal as Unix does")
@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ("inspect my.safetensors", "Error: my.safetensors is no calibration, or a damaged one:"),
        ("demo --weights nowhere.safetensors", "`lates demo --train --weights nowhere.safetensors`"),
    ],
)
def test_a_terminal_gets_errors_broken_between_words_and_commands_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, whole: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.safetensors").write_text("no tensors")
    told = told_on_a_terminal(*arguments.split())
    assert len(told) > 1
    assert max(map(len, told)) <= 80
    assert any(whole in line for line in told)
    assert run(*arguments.split()).stderr == " ".join(told).strip() + "\n"


def told_on_a_terminal(*arguments: str) -> list[str]:
    """The lines that `python -m lates ARGUMENTS` writes where standard error is a terminal of 80 columns."""
    source = str(Path(lates.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "COLUMNS": "80", "LATES_DEBUG": "", "TERM": "dumb"}
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "lates", *arguments]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, check=False)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        return terminal.read(100_000).decode().splitlines()


@pytest.mark.parametrize(("arguments", "variable"), [(["--debug"], ""), ([], "1")])
def test_the_traceback_is_shown_when_asked_for(tmp_path: Path, arguments: list[str], variable: str) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"nothing")
    command = [*arguments, "demo", "--weights", str(damaged)]
    result = run(*command, LATES_DEBUG=variable)
    assert isinstance(result.exception, ValueError)
    assert "does not hold the weights" in str(result.exception)


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Ctrl-C, two seconds from now; training takes far longer."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_exits_with_130_and_leaves_no_file(tmp_path: Path) -> None:
    result = run("demo", "--train", "--weights", str(tmp_path / "network.safetensors"))
    assert result.exit_code == 130
    assert result.stderr == "Stopped.\n"
    assert list(tmp_path.iterdir()) == []


def test_reading_the_help_does_not_wait_for_torch() -> None:
    code = "import sys; from lates.cli import app; app(['--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(Path(lates.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "calibrate" in result.stdout
