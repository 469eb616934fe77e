"""Every Python block of the README runs, in order, in one namespace, on a model of the tests."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.conftest import Problem

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_readme_is_short_and_has_code() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 150
    assert len(BLOCKS) == 3


def test_the_code_of_the_readme_runs(
    problem: Problem, ensemble: list[nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        "model": problem.model,
        "other_model": ensemble[1],
        "train_loader": problem.train,
        "holdout_loader": problem.holdout,
        "images": problem.images,
        "labels": problem.labels,
        "probe_logits": torch.randn(len(problem.labels), 10, generator=torch.Generator().manual_seed(0)),
    }
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "my.lates.safetensors").is_file()
    assert names["probabilities"].sum(1).allclose(torch.ones(len(problem.labels)))
