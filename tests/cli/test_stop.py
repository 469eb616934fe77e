"""Ctrl-C: the command stops at once and in one word, its loaders' workers too, and leaves no file."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.cli.commands import CALIBRATION, calibrate
from tests.cli_problem import Folder
from tests.terminal import start_command, wait_until_told

ENDLESS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 10**8

    def __getitem__(self, place):
        return torch.randn(6), place % 4


def make_model():
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(2)), nn.Linear(6, 4))


def make_loaders():
    workers = {"num_workers": 2, "multiprocessing_context": "METHOD"}
    return {name: DataLoader(Rows(), batch_size=4, **workers) for name in ("train", "holdout")}
"""
HANDSHAKE = """
import os
import signal
from multiprocessing import connection

from endless import make_loaders, make_model

answer = connection.answer_challenge


def answer_late(*challenge):  # a worker waits for the answer before it hands its tensor over; the signal comes first
    connection.answer_challenge = answer
    os.kill(os.getpid(), signal.SIGINT)
    ANSWER
    open("answered", "w").close()


connection.answer_challenge = answer_late
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups to signal there")
@pytest.mark.parametrize(
    "method",
    ["fork", pytest.param("spawn", marks=pytest.mark.slow), pytest.param("forkserver", marks=pytest.mark.slow)],
)
def test_ctrl_c_with_workers_stops_in_one_word(tmp_path: Path, method: str) -> None:
    """Several tries, for what a worker is doing when the signal comes differs; all start at once, to share the wait."""
    (tmp_path / "endless.py").write_text(ENDLESS.replace("METHOD", method), "utf-8")
    with ExitStack() as started:
        processes = [start_endless("endless", tmp_path) for _ in range(4)]
        for process in processes:
            started.callback(end_group, process)
        for process in processes:
            wait_until_told(process, b"train")
            os.killpg(process.pid, signal.SIGINT)
            told = check_stopped(process)
            for trouble in ("Traceback", "Error", "Exception ignored", "DataLoader worker"):
                assert trouble not in told, told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endless.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="workers hand over tensors otherwise there")
@pytest.mark.parametrize(("answer", "answered"), [("answer(*challenge)", True), ("os.read(os.pipe()[0], 1)", False)])
def test_an_interrupt_waits_for_a_worker_that_hands_over_a_tensor_but_not_for_ever(
    tmp_path: Path, answer: str, answered: bool
) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS.replace("METHOD", "fork"), "utf-8")
    (tmp_path / "handshake.py").write_text(HANDSHAKE.replace("ANSWER", answer), "utf-8")
    process = start_endless("handshake", tmp_path)
    try:
        check_stopped(process)
    finally:
        end_group(process)
    assert (tmp_path / "answered").exists() == answered


def start_endless(module: str, folder: Path) -> subprocess.Popen[bytes]:
    options = ["--model", f"{module}:make_model", "--data", f"{module}:make_loaders", "-o", "never.safetensors"]
    return start_command(["calibrate", *options], folder, own_group=True)


def check_stopped(process: subprocess.Popen[bytes]) -> str:
    """What it told on the way."""
    out, rest = process.communicate(timeout=60)
    told = rest.decode(errors="replace")
    assert (process.returncode, out) == (130, b""), told
    assert "Stopped.\n" in told
    return told


def end_group(process: subprocess.Popen[bytes]) -> None:
    """A process group ends with the test at the latest."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
