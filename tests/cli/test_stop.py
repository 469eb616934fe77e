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
    return {name: DataLoader(Rows(), batch_size=4, num_workers=2) for name in ("train", "holdout")}
"""
LATE = """
import signal
from multiprocessing import resource_sharer
from multiprocessing.connection import Client

import endless
from endless import make_model


def hear_late(worker):  # deaf to the signal, while its thread that hands over tensors finds the other end hung up
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    address, _ = resource_sharer.DupFd(0)._id
    Client(address).close()


def make_loaders():
    loaders = endless.make_loaders()
    for loader in loaders.values():
        loader.worker_init_fn = hear_late
    return loaders
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups to signal there")
@pytest.mark.parametrize("module", ["endless", "late"])
def test_ctrl_c_with_workers_stops_in_one_word(tmp_path: Path, module: str) -> None:
    """Several tries, for what a worker is doing when the signal comes differs; all start at once, to share the wait."""
    (tmp_path / "endless.py").write_text(ENDLESS, "utf-8")
    (tmp_path / "late.py").write_text(LATE, "utf-8")
    with ExitStack() as started:
        processes = [start_command(command(module), tmp_path, own_group=True) for _ in range(3)]
        for process in processes:
            started.callback(end_group, process)
        for process in processes:
            wait_until_told(process, b"train")
            os.killpg(process.pid, signal.SIGINT)
            out, rest = process.communicate(timeout=60)
            told = rest.decode(errors="replace")
            assert (process.returncode, out) == (130, b""), told
            assert "Stopped.\n" in told
            for trouble in ("Traceback", "Error", "Exception ignored", "DataLoader worker"):
                assert trouble not in told, told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endless.py", "late.py"]


def command(module: str) -> list[str]:
    return [
        "calibrate",
        "--model",
        f"{module}:make_model",
        "--data",
        f"{module}:make_loaders",
        "-o",
        "never.safetensors",
    ]


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
