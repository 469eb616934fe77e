"""Features on disk are those in memory, the files vanish with them, and moments lose nothing to rounding."""

import errno
import gc
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from tests.networks import fail_after, loader, network, same


def features_of(rows: Tensor, batch_size: int = 64) -> lates.Features:
    model = nn.Sequential(nn.Identity(), nn.Linear(rows.shape[1], 3)).eval()
    data = TensorDataset(rows, torch.zeros(len(rows)).long())
    return lates.extract(model, DataLoader(data, batch_size), blocks=["0"])


def test_features_that_vary_by_rounding_alone_count_as_constant() -> None:
    constants = torch.tensor([0.0, 1e-8, 0.5, -3.0, 100.0, 1e-30, 100.0])
    rows = constants.repeat(40, 1)
    rows[::2, -1] = torch.nextafter(constants, 2 * constants)[-1]
    features = features_of(rows)
    assert features.deviation["0"].tolist() == [1.0] * 7
    assert float((features.blocks["0"] - features.centre["0"]).abs().max()) < 1e-5


@pytest.mark.parametrize(("offset", "batch_size"), [(3e5, 64), (100, 7)])
def test_moments_are_those_of_all_rows_and_do_not_cancel(
    offset: float, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lates.network.features.NUMBERS_AT_ONCE", 1000)
    rows = offset + torch.randn(2500, 2, generator=torch.Generator().manual_seed(0))
    features, exact = features_of(rows, batch_size), rows.double()
    assert torch.allclose(features.centre["0"], exact.mean(0), rtol=1e-12)
    assert torch.allclose(features.deviation["0"], exact.std(0, correction=0), rtol=1e-9)


@pytest.mark.parametrize("memory", [0, 3000])
def test_spilled_features_are_bitwise_the_same_and_their_files_nameless(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[list[Path]] = []
    model = network()
    plain = lates.extract(model, loader(), views="shift", passes=2)
    spilled = lates.extract(
        model,
        loader(),
        views="shift",
        passes=2,
        memory=memory,
        progress=lambda *_: seen.append(list(tmp_path.iterdir())),
    )
    assert spilled.mapped
    assert not plain.mapped
    assert same(spilled, plain)
    if sys.platform == "linux":
        assert not any(seen)
        assert open_files(tmp_path) > 0
        del spilled
        gc.collect()
        assert open_files(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def open_files(folder: Path) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(os.readlink(link).startswith(str(folder)) for link in links if link.is_symlink())


def test_an_interrupted_spill_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(OSError, match="disk"):
            lates.extract(network(), fail_after(2), memory=0)
        gc.collect()
    assert list(tmp_path.iterdir()) == []
    if sys.platform == "linux":
        assert open_files(tmp_path) == 0


FULL_DISK = """
import resource, sys, torch
import lates
from torch import Tensor, nn

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
width, batches = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 3)).eval()
batch = torch.ones(50, 4), torch.zeros(50).long()
lates.extract(model, [batch] * batches, blocks=["0"], memory=0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as Unix does")
@pytest.mark.parametrize(("width", "batches"), [(1000, 1), (10, 6)], ids=["at a write", "at the last flush"])
def test_a_spill_that_finds_no_room_says_where_and_what_helps(tmp_path: Path, width: int, batches: int) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", FULL_DISK, str(width), str(batches)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    *_, last_line = done.stderr.splitlines()
    assert done.returncode == 1
    assert last_line.startswith(f"OSError: [Errno {errno.EFBIG}] Cannot write rows that exceed the memory")
    assert f"in {tmp_path}: File too large. Set TMPDIR" in last_line
    assert list(tmp_path.iterdir()) == []
