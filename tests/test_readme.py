"""Every Python block of the README runs, in order, in one namespace, on a model of the tests."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from lates.demo import TEMPERATURE, calibrate_all, compare_all, load_network, load_splits
from tests.conftest import Problem

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
SETS = {"as they are": "as they are", "with noise": "noise", "less contrast": "contrast", "blurred": "blur"}


def test_the_readme_is_short_and_has_code() -> None:
    assert len(TEXT.splitlines()) < 150
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
        "test_loader": [(problem.images, problem.labels)],
        "images": problem.images,
        "labels": problem.labels,
        "probe_logits": torch.randn(len(problem.labels), 10, generator=torch.Generator().manual_seed(0)),
    }
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "my.lates.safetensors").is_file()
    assert (tmp_path / "report.html").is_file()
    assert names["probabilities"].sum(1).allclose(torch.ones(len(problem.labels)))


@pytest.mark.slow
def test_the_gains_of_the_readme_are_what_the_demo_measures() -> None:
    network, splits = load_network(), load_splits()
    comparisons = compare_all(network, splits, calibrate_all(network, splits)).comparisons
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if "LATES" in line and line[0] == "|"
    ]
    assert len(rows) == 8
    for test_set, method, *cells in rows:
        differences = comparisons[SETS[test_set]].differences[method][TEMPERATURE]
        for metric, cell in zip(("nll", "accuracy", "ece"), cells, strict=True):
            stated = float(cell.split()[0].strip("*").replace("−", "-"))
            assert stated == pytest.approx(differences[metric].value, abs=0.004), (test_set, method, metric)
