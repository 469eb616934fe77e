"""Several processes end with the calibration of one, or all stop and say why; and memory stays bounded, whatever n is."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import lates
from lates.memory import default_memory, free_memory
from lates.shares import Deal, Share
from lates.team import ALONE, Team, form_team
from tests import processes
from tests.processes import Outcome, Place

ROOT = Path(__file__).parents[1]
DEADLINE = 120.0
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",  # there may be fewer GPUs than processes
}
Together = list[dict[str, Any]]
"""For each process what each of its tasks came to: an outcome, or (kind of fault, message)."""


def start(life: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process of its own that lives one of the lives in `tests.processes`."""
    command = [sys.executable, "-m", "tests.processes", life, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=ENVIRONMENT
    )


def run_together(life: str, size: int, folder: Path) -> None:
    """So many processes that meet in `folder`; one that hangs fails the test instead of hanging it."""
    started = [start(life, place, size, folder) for place in range(size)]
    try:
        for process in started:
            said, _ = process.communicate(timeout=DEADLINE)
            assert process.returncode == 0, said
    finally:
        for process in started:
            process.kill()


def outcomes(size: int, folder: Path) -> Together:
    run_together("work", size, folder)
    return [torch.load(folder / f"{size}-{place}", weights_only=False) for place in range(size)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Together:
    return outcomes(3, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Together:
    return outcomes(2, tmp_path_factory.mktemp("two"))


def check_alike(task: Callable[[Place], Outcome], together: Together) -> None:
    alone = task(Place())
    assert sum(weight > 0 for weight in alone.weights.values()) > (len(alone.weights) > 1)
    for of_process in together:
        found = of_process[task.__name__]
        assert isinstance(found, Outcome), found
        assert found.weights == pytest.approx(alone.weights, rel=1e-5, abs=1e-5)
        assert torch.allclose(found.probabilities, alone.probabilities, atol=1e-5)
        assert found.fit.nll == pytest.approx(alone.fit.nll, rel=1e-6)
        assert found.fit.nll_network == pytest.approx(alone.fit.nll_network, rel=1e-6)
        assert (found.fit.rows, found.fit.certified) == (alone.fit.rows, alone.fit.certified)
        assert found.weights == together[0][task.__name__].weights


@pytest.mark.parametrize("task", processes.IN_THREE, ids=lambda task: task.__name__)
def test_three_processes_end_with_the_calibration_of_one(task: Callable[[Place], Outcome], three: Together) -> None:
    check_alike(task, three)


@pytest.mark.parametrize("task", processes.IN_TWO, ids=lambda task: task.__name__)
def test_two_processes_end_with_the_calibration_of_one(task: Callable[[Place], Outcome], two: Together) -> None:
    check_alike(task, two)


def test_one_process_may_work_alone(three: Together) -> None:
    found = [of_process["alone_in_one_process"] for of_process in three]
    assert found[0].weights == processes.by_default(Place()).weights
    assert found[1:] == [None, None]


def test_sums_are_those_of_all_processes_and_leave_what_each_has(three: Together) -> None:
    few, many = torch.arange(6).view(2, 3).T, torch.arange(8000.0).view(100, 80).T
    for place, of_process in enumerate(three):
        found = of_process["exchanges"]
        expected = {"few": 6 * few, "many": 6 * many, "first": few, "of_first": many, "own": (place + 1) * many}
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            assert torch.equal(found[name], values)
        assert (found["items"], found["neighbours"]) == ([0, 1, 2], 3)


@pytest.mark.parametrize(
    ("task", "failing", "text"),
    [
        ("a_reader_fails", 1, "full of holes"),
        ("a_trainer_fails", 0, "ink"),
        ("a_last_step_fails", 2, "paper"),
        ("a_process_fails_before_a_large_sum", 1, "glue"),
    ],
)
def test_a_process_that_fails_stops_the_others_and_tells_them_why(
    task: str, failing: int, text: str, three: Together
) -> None:
    for place, of_process in enumerate(three):
        kind, message = of_process[task]
        assert text in message
        assert kind == ("OSError" if place == failing else "OtherProcessError")
        assert place == failing or message.startswith(f"Process {failing} of 3 failed, so all stopped. OSError")


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("other_rows", "train loaders of the 3 processes begin with different batches"),
        ("one_other_image", "train loaders of the 3 processes begin with different batches"),
        ("one_other_label", "train loaders of the 3 processes begin with different batches"),
        ("other_orders", "read the train loader in different orders"),
        ("other_ends", "read the holdout loader in different orders, or not to the same end"),
        ("own_shares_of_which_two_are_the_same", "train loaders of processes 0, 2 begin with the same batch"),
        ("other_parameters", "Processes 0 and 1 calibrate different networks"),
        ("the_paper_s_solvers", "The paper's SGD is for one process, and here are 3"),
    ],
)
def test_rows_missed_or_counted_twice_are_refused_by_all(task: str, text: str, three: Together) -> None:
    for of_process in three:
        kind, message = of_process[task]
        assert kind == "ValueError"
        assert text in message


def test_a_process_that_waits_in_vain_says_what_to_do(tmp_path: Path) -> None:
    run_together("wait_in_vain", 2, tmp_path)
    said = (tmp_path / "said").read_text("utf-8")
    assert said.startswith("Process 0 of 2 could not reach the others")
    assert 'shares="whole"' in said


def test_the_script_in_the_documentation_calibrates_together(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    (script,) = re.findall(r'^```python title="calibrate_together.py"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    (tmp_path / "calibrate_together.py").write_text(script, "utf-8")
    (tmp_path / "my_project.py").write_text(
        "from tests.processes import loaders, network as make_model\nmake_loaders = lambda: loaders().values()\n",
        "utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "calibrate_together.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    loaded = lates.load(tmp_path / "model.lates.safetensors", processes.network())
    with pytest.warns(UserWarning, match="budget"):  # so small a network can afford no probe
        alone = processes.calibrate(budget=0.01)
    assert loaded.weights == pytest.approx(alone.weights, abs=1e-5)
    assert loaded.fit.rows == processes.HELD


@given(batches=st.integers(1, 40), size=st.integers(2, 7))
def test_a_deal_gives_every_batch_to_one_process_and_the_first_to_all(batches: int, size: int) -> None:
    numbers: list[int] = []
    for place in range(size):
        deal = Deal(Team(place, size))
        hand = list(deal.of(list(range(batches))))
        own = [deal.number(position) for position in range(len(hand))]
        assert hand[0] == 0
        assert all(number in (item, -1) for number, item in zip(own, hand, strict=True))
        numbers += [number for number in own if number >= 0]
    assert sorted(numbers) == list(range(batches))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_loads_its_share_only(workers: int) -> None:
    loader = DataLoader(TensorDataset(torch.arange(70)), 10, num_workers=workers)
    deal = Deal(Team(1, 3))
    assert [int(rows[0]) // 10 for (rows,) in deal.of(loader)] == [0, 1, 4]
    assert deal.batches == 7


def test_a_distributed_sampler_is_set_aside_with_its_padding() -> None:
    data = TensorDataset(torch.arange(10), torch.zeros(10).long())
    sampler = DistributedSampler(data, 3, 1)
    loader = DataLoader(data, 4, sampler=sampler)
    assert len(sampler) == 4  # 12 in all, of 10 rows
    share = Share(loader, Team(1, 3), "train")
    assert torch.cat([rows for rows, _ in share.loader]).tolist() == list(range(10))
    assert share.batches == 2
    assert Share(loader, ALONE, "train").loader is loader
    other = DataLoader(TensorDataset(torch.arange(10)), 4, sampler=DistributedSampler(data, 3, 1))
    with pytest.raises(ValueError, match=r"train loader reads through a DistributedSampler.*Pass a plain DataLoader"):
        Share(other, Team(1, 3), "train")


def test_without_a_group_there_is_one_process_and_a_misspelt_share_is_refused() -> None:
    assert form_team("dealt", torch.device("cpu")) is ALONE
    with pytest.raises(ValueError, match='shares="wohle": expected one of dealt, own, whole'):
        processes.calibrate(shares="wohle")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the private memory from /proc")
def test_memory_stays_bounded_whatever_the_number_of_rows() -> None:
    """Both splits hold 61 MB of features each, and standardised copies half as much again; allowed are 4 MB. Of four times as
    many rows, 370 MB more of features, the peak has the same bound, the working space of chunks."""
    for batches in (60, 240):  # one by one: who looks every 2 ms must not be kept waiting
        process = start("grown_memory", batches, 4 << 20)
        said, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, said
        assert int(said) < (4 << 20) + 100_000_000  # 60 to 70 million, most of the time


def test_less_memory_changes_no_calibration() -> None:
    plenty, little = processes.by_default(Place()), processes.out_of_memory(Place())
    assert little.weights == pytest.approx(plenty.weights, abs=1e-7)
    assert torch.allclose(little.probabilities, plenty.probabilities, atol=1e-7)


def test_members_beyond_their_memory_are_mapped_from_files() -> None:
    model = processes.network()
    train, held = (lates.extract(model, loader) for loader in processes.loaders().values())
    probes = {name: trained.probe for name, trained in lates.train_probes(train, held).items()}
    kept, spilled = lates.member_logits(probes, held), lates.member_logits(probes, held, memory=0)
    assert list(kept) == list(spilled)
    assert all(torch.equal(kept[name], spilled[name]) for name in kept)


def test_the_default_memory_heeds_the_control_groups_around_a_process(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")

    write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert free_memory(tmp_path) == 8000 * 1024
    write("proc/self/cgroup", "4:memory:/outer/inner\n1:cpu:/\n0::/pod/box\n")
    assert free_memory(tmp_path) == 8000 * 1024
    write("sys/fs/cgroup/pod/box/memory.max", "max\n")
    write("sys/fs/cgroup/pod/box/memory.current", "5000\n")
    write("sys/fs/cgroup/pod/memory.max", "7000000\n")
    write("sys/fs/cgroup/pod/memory.current", "3000000\n")
    write("sys/fs/cgroup/pod/memory.stat", "anon 1500000\ninactive_file 1000000\n")
    assert free_memory(tmp_path) == 5_000_000
    write("sys/fs/cgroup/memory/outer/memory.limit_in_bytes", "2000000\n")
    write("sys/fs/cgroup/memory/outer/memory.usage_in_bytes", "500000\n")
    write("sys/fs/cgroup/memory/outer/memory.stat", "total_inactive_file 100000\n")
    assert free_memory(tmp_path) == 1_600_000
    write("sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes", "100\n")
    write("sys/fs/cgroup/memory/outer/inner/memory.usage_in_bytes", "200\n")
    assert free_memory(tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory there is")
@pytest.mark.parametrize("told", [None, "MemTotal: 9000 kB\n", "MemAvailable: unknown\n"])
def test_where_it_is_not_told_what_is_free_all_of_the_machine_s_memory_counts(tmp_path: Path, told: str | None) -> None:
    if told is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/meminfo").write_text(told, "utf-8")
    assert free_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_neighbours_on_one_machine_share_its_memory() -> None:
    alone, shared = default_memory(torch.device("cpu")), default_memory(torch.device("cpu"), neighbours=4)
    assert 0 < shared < alone / 3
