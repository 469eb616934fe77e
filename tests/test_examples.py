"""Every example runs as it stands, in seconds, and shows the gain that it is there to show."""

import re
import runpy
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
COMPARED = re.compile(r"^(.+?) +nll (\d\.\d{3})  accuracy \d\.\d{3}  ece \d\.\d{3}$", flags=re.MULTILINE)


def test_there_is_one_for_every_kind_of_use() -> None:
    kinds = "ensemble image lightning_callback mc_dropout"
    assert [path.stem for path in EXAMPLES] == kinds.split()


@pytest.mark.filterwarnings("ignore")  # those that Lightning and PyTorch's exporters give about themselves
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng([]):
        runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"
    losses = {name: float(nll) for name, nll in COMPARED.findall(printed)}
    *_, rival, calibrated = losses.values()
    assert calibrated < rival - 0.005
