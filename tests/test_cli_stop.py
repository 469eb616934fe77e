"""Ctrl-C at a terminal: the signal reaches the command and its loaders' workers alike."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.terminal import start_command, wait_until_told

MODULE = """
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
COMMAND = ["calibrate", "--model", "endless:make_model", "--data", "endless:make_loaders", "-o", "never.safetensors"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups to signal there")
def test_ctrl_c_with_workers_stops_in_one_word(tmp_path: Path) -> None:
    """Several tries, for what a worker is doing when the signal comes differs; all start at once, to share the wait."""
    (tmp_path / "endless.py").write_text(MODULE, "utf-8")
    with ExitStack() as started:
        processes = [start_command(COMMAND, tmp_path, own_group=True) for _ in range(4)]
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["endless.py"]


def end_group(process: subprocess.Popen[bytes]) -> None:
    """A process group ends with the test at the latest."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
