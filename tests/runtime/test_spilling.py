"""Features on disk are those in memory, the files vanish with them, and moments lose nothing to rounding."""

import errno
import gc
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from tests.networks import fail_after, loader, network, same


def test_constant_features_survive_standardisation() -> None:
    model = network()
    nn.init.zeros_(model.get_parameter("body.8.weight"))
    constants = torch.tensor([0.0, 1e-8, 0.5, -3.0, 100.0, 1e-30])
    model.get_parameter("body.8.bias").data.copy_(constants)
    features = lates.extract(model, loader(), blocks=["body.8"])
    assert features.deviation["body.8"].tolist() == [1.0] * 6
    standardised = (features.blocks["body.8"] - features.centre["body.8"]) / features.deviation["body.8"]
    assert float(standardised.abs().max()) < 1e-6


def test_a_feature_that_varies_by_rounding_alone_counts_as_constant() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(1, 3)).eval()
    hundred = torch.tensor([100.0])
    rows = torch.stack([hundred, torch.nextafter(hundred, 2 * hundred)]).repeat(20, 1)
    features = lates.extract(model, [(rows, torch.zeros(40).long())], blocks=["0"])
    assert features.deviation["0"].tolist() == [1.0]


def test_moments_of_features_far_from_zero_do_not_cancel() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(2, 3)).eval()
    rows = 3e5 + torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    features = lates.extract(model, DataLoader(TensorDataset(rows, torch.zeros(500).long()), 64), blocks=["0"])
    assert torch.allclose(features.deviation["0"], rows.double().std(0, correction=0), rtol=1e-9)


def test_moments_of_many_small_batches_are_those_of_all_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = 100 + torch.randn(2500, 3, generator=generator)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    features = lates.extract(model, DataLoader(TensorDataset(inputs, torch.arange(2500) % 2), batch_size=7))
    (values,) = features.blocks.values()
    (centre,), (deviation,) = features.centre.values(), features.deviation.values()
    variance, mean = torch.var_mean(values.double(), 0, correction=0)
    assert torch.allclose(centre, mean, rtol=1e-12)
    assert torch.allclose(deviation, torch.where(variance > 0, variance.sqrt(), 1.0), rtol=1e-9)


@pytest.mark.parametrize("memory", [0, 1000, 3000])
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
from torch import nn

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
    *_, told = done.stderr.splitlines()
    assert done.returncode == 1
    assert told.startswith(f"OSError: [Errno {errno.EFBIG}] Cannot write rows that exceed the memory")
    assert f"in {tmp_path}: File too large. Set TMPDIR" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory from /proc")
def test_memory_stays_bounded_when_spilling() -> None:
    """160 MB of features under a limit of 4 MB: private memory hardly grows from the second quarter to the last."""
    model = nn.Sequential(nn.Linear(4, 10_000), nn.Linear(10_000, 3, bias=False)).eval()
    batch = (torch.randn(50, 4), torch.zeros(50).long())
    levels: list[int] = []
    features = lates.extract(
        model, [batch] * 80, blocks=["0"], memory=4 << 20, progress=lambda *_: levels.append(private_bytes())
    )
    assert features.blocks["0"].numel() * 4 == 160_000_000
    assert median(levels[60:]) - median(levels[20:40]) < 40_000_000


def private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon")
