"""Memory stays bounded, whatever the number of rows, and the default heeds what a container is allowed."""

import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lates
from lates.probes import training
from lates.probes.rows import StandardisedRows
from lates.runtime.memory import ASSUMED_FREE, RowStore, default_memory, free_memory
from tests import processes
from tests.networks import loader, network
from tests.processes import Rank
from tests.test_distributed import DEADLINE, start


@pytest.mark.skipif(sys.platform != "linux", reason="reads the private memory from /proc")
def test_memory_stays_bounded_whatever_the_number_of_rows() -> None:
    """Both splits hold 245 MB of features each, and standardised copies half as much again; allowed are 4 MB. The rest of the
    peak is the working space of chunks: 60 to 110 million bytes, on a busy machine up to 155, whatever the number of rows."""
    process = start("grown_memory", 240, 4 << 20)
    said, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, said
    assert int(said.splitlines()[-1]) < 200_000_000


def test_rows_joined_under_one_name_are_freed_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = {name: torch.ones(3, 2) for name in ("first", "second")}
    held, freed, join = [weakref.ref(chunk) for chunk in chunks.values()], [], torch.cat

    def watched(parts: list[Tensor]) -> Tensor:
        freed.append([chunk() is None for chunk in held])
        return join(parts)

    with RowStore(1000) as store:
        store.append(chunks)
        del chunks
        monkeypatch.setattr(torch, "cat", watched)
        store.collect()
    assert freed == [[False, False], [True, False]]


def test_copies_of_one_block_are_freed_before_the_next_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    alive, most = weakref.WeakSet[StandardisedRows](), [0]

    class Watched(StandardisedRows):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            alive.add(self)
            most.append(len(alive))

    monkeypatch.setattr(training, "StandardisedRows", Watched)
    train = lates.extract(network(), loader(40))
    assert len(train.blocks) == 3
    lates.train_probes(train, lates.extract(network(), loader(20), like=train))
    assert max(most) == 2


def test_less_memory_changes_no_calibration() -> None:
    plenty, little = processes.by_default(Rank()), processes.little_memory(Rank())
    assert little.weights == pytest.approx(plenty.weights, abs=1e-7)
    assert torch.allclose(little.probabilities, plenty.probabilities, atol=1e-7)


def test_members_beyond_their_memory_are_mapped_from_files() -> None:
    model = processes.network()
    train, holdout = (lates.extract(model, loader) for loader in processes.loaders().values())
    probes = {name: trained.probe for name, trained in lates.train_probes(train, holdout).items()}
    kept, spilled = lates.member_logits(probes, holdout), lates.member_logits(probes, holdout, memory=0)
    assert list(kept) == list(spilled)
    assert all(torch.equal(kept[name], spilled[name]) for name in kept)


def test_the_default_memory_heeds_the_control_groups_around_a_process(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")

    assert free_memory(tmp_path) == ASSUMED_FREE
    write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert free_memory(tmp_path) == 8000 * 1024
    write("proc/self/cgroup", "1:cpu:/\n0::/pod/box\n")
    assert free_memory(tmp_path) == 8000 * 1024
    write("sys/fs/cgroup/pod/box/memory.max", "max\n")
    write("sys/fs/cgroup/pod/box/memory.current", "5000\n")
    write("sys/fs/cgroup/pod/memory.max", "7000000\n")
    write("sys/fs/cgroup/pod/memory.current", "3000000\n")
    write("sys/fs/cgroup/pod/memory.stat", "anon 1500000\ninactive_file 1000000\n")
    assert free_memory(tmp_path) == 5_000_000
    write("sys/fs/cgroup/pod/box/memory.max", "100\n")
    assert free_memory(tmp_path) == 0


def test_neighbours_on_one_machine_share_its_memory() -> None:
    alone, shared = default_memory(torch.device("cpu")), default_memory(torch.device("cpu"), neighbours=4)
    assert 0 < shared < alone / 3


@pytest.mark.parametrize(
    ("scale", "offset", "halved"), [(1.0, 0.0, True), (0.0, 0.3, True), (0.01, 100.0, False), (1e-7, 0.0, False)]
)
def test_rows_are_halved_only_where_float16_keeps_how_they_vary(scale: float, offset: float, halved: bool) -> None:
    values = scale * torch.randn(100, 4, generator=torch.Generator().manual_seed(0)) + offset
    with RowStore(10**6, halved=["block"]) as store:
        store.append({"block": values})
        store.halve()
        (kept,) = store.collect().values()
    assert (kept.dtype == torch.float16) == halved
    assert halved or torch.equal(kept, values)
