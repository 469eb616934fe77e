"""`lates calibrate` in several processes: the calibration of one, written and told once."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import lates
from lates.cli.torchrun import is_first
from tests.cli_problem import MODULE, make_folder
from tests.terminal import own_lines

DEADLINE = 120.0
PROGRAM = "from lates.cli import app; app()"
COMMAND = ["calibrate", "--model", "their_module:make_model", "--data", "their_module:make_loaders", "--device", "cpu"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", sys.executable]


def run(folder: Path, start: list[str], *options: str) -> "subprocess.CompletedProcess[str]":
    source = str(Path(lates.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *start, "-c", PROGRAM, *COMMAND, "--checkpoint", "weights.pt", "--budget", "none", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_two_processes_write_once_what_one_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = make_folder(tmp_path)
    alone, together = run(tmp_path, [], "-o", "alone.safetensors"), run(tmp_path, TORCHRUN, "-o", "two.safetensors")
    assert (alone.returncode, together.returncode) == (0, 0), together.stderr
    assert own_lines(together.stdout) == alone.stdout.splitlines()
    assert together.stderr.count("Wrote two.safetensors") == 1
    monkeypatch.syspath_prepend(theirs.path)
    module = import_module(MODULE)
    network = module.make_model().eval()
    network.load_state_dict(torch.load(theirs.weights, weights_only=True))
    rows, _ = module.draw(200, 7)
    one, two = (lates.load(tmp_path / f"{name}.safetensors", network) for name in ("alone", "two"))
    torch.testing.assert_close(two.predict_proba(rows), one.predict_proba(rows), rtol=0, atol=1e-5)


def test_a_file_that_is_there_is_refused_before_any_work(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "mine.safetensors").write_text("mine", "utf-8")
    refused = run(tmp_path, TORCHRUN, "-o", "mine.safetensors")
    assert refused.returncode != 0
    assert refused.stderr.count("Error: mine.safetensors exists already. Pass --force") == 1
    assert (tmp_path / "mine.safetensors").read_text("utf-8") == "mine"


def test_a_rank_without_others_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers set RANK for jobs of one process as well."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert is_first()
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert not is_first()
