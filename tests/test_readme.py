"""Every Python block of the README runs, in order, in one namespace, on a model of the tests."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from lates.demo import LATES, NETWORK, NO_VIEWS, TEMPERATURE, load_network, load_splits, run_experiment
from lates.metrics import verdict
from tests.conftest import Problem
from tests.docs_names import names_of_images

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
METHODS = {
    "network alone": NETWORK,
    "temperature scaling": TEMPERATURE,
    "LATES, `views=None`": NO_VIEWS,
    "LATES": LATES,
}


def test_the_readme_is_short_and_has_code() -> None:
    assert len(TEXT.splitlines()) < 150
    assert len(BLOCKS) == 2
    assert all((README.parent / path).is_file() for path in re.findall(r"!\[[^]]*\]\((.*?)\)", TEXT))


def test_the_code_of_the_readme_runs(
    problem: Problem, ensemble: list[nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unlike = torch.randn(len(problem.labels), 10, generator=torch.Generator().manual_seed(0))
    names = {**names_of_images(problem, ensemble), "probe_logits": unlike}
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "my.lates.safetensors").is_file()
    assert (tmp_path / "report.html").is_file()
    assert names["probabilities"].sum(1).allclose(torch.ones(len(problem.labels)))


@pytest.mark.slow
def test_the_numbers_of_the_readme_are_what_the_demo_measures() -> None:
    network, splits = load_network(), load_splits()
    comparisons = run_experiment(network, splits)[0].comparisons
    table = TEXT[TEXT.index("| method | NLL: plain") :].split("\n\n")[0].splitlines()[2:]
    rows = {name.strip(): cells for name, *cells in (line.strip("|").split("|") for line in table)}
    assert list(rows) == list(METHODS)
    for method, cells in rows.items():
        columns = [(metric, test_set) for metric in ("nll", "ece") for test_set in comparisons]
        for (metric, test_set), cell in zip(columns, cells, strict=True):
            found = comparisons[test_set]
            value = found.measured[METHODS[method]][metric].value
            assert float(cell.strip(" *")) == pytest.approx(value, abs=0.004), (test_set, method, metric)
            if METHODS[method] in (NO_VIEWS, LATES):
                beyond_chance = verdict(found.differences[METHODS[method]][TEMPERATURE][metric], metric) == "better"
                assert ("**" in cell) == beyond_chance, (test_set, metric)
