"""`lates calibrate` under torchrun: the calibration of one process, written and printed once."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import lates
from lates.cli.calibrate import world
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


def test_two_processes_write_the_calibration_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_two_processes_refuse_an_existing_file_once(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "mine.safetensors").write_text("mine", "utf-8")
    refused = run(tmp_path, TORCHRUN, "-o", "mine.safetensors")
    assert refused.returncode != 0
    assert refused.stderr.count("Error: mine.safetensors exists already. Pass --force") == 1
    assert (tmp_path / "mine.safetensors").read_text("utf-8") == "mine"


@pytest.mark.parametrize(
    ("rank", "size", "expected"), [("3", None, (0, 1)), ("3", "4", (3, 4)), ("0", "1", (0, 1)), (None, "4", (0, 1))]
)
def test_world_is_one_process_without_torchrun(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, size: str | None, expected: tuple[int, int]
) -> None:
    """Schedulers set one of the variables for single processes as well."""
    for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert world() == expected
