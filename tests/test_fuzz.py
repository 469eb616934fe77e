"""Damaged and forged files: a reader gives what was written, or says in a sentence what is wrong. Nothing else, and soon."""

import copy
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import lates
from lates.cli.checkpoint import load_checkpoint
from lates.cli.contents import read_contents
from lates.model import KEY, read_calibration, write_calibration
from tests.conftest import Problem

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CASES = 200
SECONDS_PER_CASE = 5.0
LARGEST_GROWTH = 300_000_000
"""Bytes of memory by which reading hundreds of small files may grow the process."""

Random = np.random.Generator


def flip_bits(content: bytes, other: bytes, random: Random) -> bytes:
    changed = np.frombuffer(content, np.uint8).copy()
    places = random.integers(0, min(len(changed), random.choice([64, 2000, len(changed)])), random.integers(1, 4))
    changed[places] ^= (1 << random.integers(0, 8, len(places))).astype(np.uint8)
    return changed.tobytes()


def truncate(content: bytes, other: bytes, random: Random) -> bytes:
    return content[: random.integers(0, len(content))]


def splice(content: bytes, other: bytes, random: Random) -> bytes:
    """The beginning of one file, the end of another."""
    return content[: random.integers(0, len(content))] + other[random.integers(0, len(other)) :]


def overwrite(content: bytes, other: bytes, random: Random) -> bytes:
    start, length = random.integers(0, len(content)), random.integers(1, 4096)
    return (content[:start] + bytes([random.choice([0, 255])]) * length + content[start + length :])[: len(content)]


def forge_length(content: bytes, other: bytes, random: Random) -> bytes:
    """Of a safetensors header."""
    return int(random.choice([0, 1, 2**31, 2**63 - 1, len(content)])).to_bytes(8, "little") + content[8:]


DAMAGES = (flip_bits, truncate, splice, overwrite, forge_length)

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3000, 2**70, -(2**70), 1e308, float("nan"), float("inf"), "", "\ud800", "\x1b[2J", "head",
    "__proto__", [], {}, [[]], [3000, 3000], {"a": []}, ["head", "head"], "9" * 5000,
)  # fmt: skip


def places_in(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of JSON data."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from places_in(value)


def forge(metadata: dict[str, Any], random: Random) -> dict[str, Any]:
    """One or two places of the metadata removed, or with another value in them."""
    forged = copy.deepcopy(metadata)
    for _ in range(random.integers(1, 3)):
        places = list(places_in(forged))
        container, key = places[random.integers(len(places))]
        if random.random() < 0.2:
            del container[key]
        else:
            container[key] = copy.deepcopy(HOSTILE[random.integers(len(HOSTILE))])
    return forged


FORGED_TENSORS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda values: values * float("nan"),
    lambda values: -values - 1,
    lambda values: values.to(torch.int8),
    lambda values: values.to(torch.complex64),
    lambda values: values[:0],
    lambda values: values[None],
    lambda values: values.reshape(-1)[0],
    lambda values: torch.cat([values, values]),
)


@contextmanager
def bounded() -> Iterator[None]:
    """An error after some seconds, and where the memory has grown."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not read within {SECONDS_PER_CASE} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handler = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_CASE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < LARGEST_GROWTH


def refused(path: Path, read: Callable[[], Any]) -> bool:
    """Whether a file is refused; only by an error of the checks that names it."""
    try:
        with bounded():
            read()
        return False
    except (ValueError, TypeError) as error:
        message = str(error)
    assert path.name in message
    assert len(message) < 3000
    return True


def test_a_damaged_calibration_is_refused_or_as_it_was(
    saved: Path, problem: Problem, calibrated: lates.CalibratedModel, tmp_path: Path
) -> None:
    random, content, path = np.random.default_rng(0), saved.read_bytes(), tmp_path / "damaged.safetensors"
    other = tmp_path / "temperature.safetensors"
    lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], progress=False).save(other)
    for number in range(CASES):
        path.write_bytes(DAMAGES[number % len(DAMAGES)](content, other.read_bytes(), random))
        if not refused(path, lambda: lates.load(path, problem.model)):
            loaded = lates.load(path, problem.model)
            assert (loaded.weights, loaded.fit.numbers) == (calibrated.weights, calibrated.fit.numbers)
            with torch.no_grad():
                assert torch.equal(loaded(problem.images[:4]), calibrated(problem.images[:4]))


def test_a_forged_calibration_is_refused_or_predicts(saved: Path, problem: Problem, tmp_path: Path) -> None:
    random, path = np.random.default_rng(1), tmp_path / "forged.safetensors"
    tensors, metadata = read_calibration(saved)
    for number in range(CASES):
        forged = dict(tensors)
        if number % 3 == 0:
            name = list(tensors)[random.integers(len(tensors))]
            forged[name] = FORGED_TENSORS[random.integers(len(FORGED_TENSORS))](tensors[name])
        write_calibration(path, forged, metadata if number % 3 == 0 else forge(metadata, random))
        refused(path, lambda: read_contents(path))
        if not refused(path, lambda: lates.load(path, problem.model)):
            with bounded(), torch.no_grad(), suppress(RuntimeError):  # another pooling shows only as the network runs
                assert lates.load(path, problem.model)(problem.images[:4]).isfinite().all()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": ' + "9" * 5000 + "}", '{"format": 2, "seed": "\\ud800"}', "null"])
def test_metadata_that_json_reads_badly_are_refused(tmp_path: Path, problem: Problem, text: str) -> None:
    path = tmp_path / "text.safetensors"
    save_file({"0.weights": torch.ones(1)}, path, {KEY: text})
    assert refused(path, lambda: lates.load(path, problem.model))


def small_network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def write_checkpoints(folder: Path) -> list[Path]:
    state = {name: value + 1 for name, value in small_network().state_dict().items()}
    torch.save(state, folder / "zip.pt")
    torch.save({"epoch": 3, "state_dict": state}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    save_file(state, folder / "plain.safetensors")
    return [folder / "zip.pt", folder / "legacy.pt", folder / "plain.safetensors"]


def load_or_leave(path: Path) -> None:
    """A refused checkpoint leaves the network as it was."""
    network = small_network()
    if refused(path, lambda: load_checkpoint(network, path)):
        assert all(
            torch.equal(one, other)
            for one, other in zip(network.state_dict().values(), small_network().state_dict().values(), strict=True)
        )


def test_a_damaged_checkpoint_is_refused_or_loaded(tmp_path: Path) -> None:
    random, paths = np.random.default_rng(2), write_checkpoints(tmp_path)
    contents = [path.read_bytes() for path in paths]
    for number in range(2 * CASES):
        kind, other = number % 3, random.integers(3)
        damaged = tmp_path / f"damaged{paths[kind].suffix}"
        damaged.write_bytes(DAMAGES[number // 3 % len(DAMAGES)](contents[kind], contents[other], random))
        load_or_leave(damaged)


def hostile_states() -> Iterator[Any]:
    state = small_network().state_dict()
    itself: dict[str, Any] = {}
    itself["model"] = itself
    deep: dict[str, Any] = dict(state)
    for _ in range(50):
        deep = {"model": deep}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(3)] * 5)
    yield from (itself, {"state_dict": itself}, deep, [itself], {}, {"model": {}}, None, {"\ud800": torch.ones(1)})
    weights = (
        nested, torch.ones(5, 3, device="meta"), torch.ones(5, 3).to_sparse(), torch.ones(5, 3) * 1j, torch.ones(5, 3).bool(),
        torch.zeros(1).expand(10**12), torch.zeros(0), torch.ones(5, 3) * torch.nan, [1.0], "\ud800", None, {"a": state},
    )  # fmt: skip
    yield from ({**state, "0.weight": weight} for weight in weights)
    yield {**state, "1.num_batches_tracked": 3}


def test_a_checkpoint_of_hostile_content_is_refused_or_loaded(tmp_path: Path) -> None:
    path = tmp_path / "hostile.pt"
    for content in hostile_states():
        for legacy in (False, True):
            torch.save(content, path, _use_new_zipfile_serialization=not legacy)
            load_or_leave(path)
