"""`--checkpoint`: every usual form is read, every mismatch named, and only tensors are unpickled."""

import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from lates.cli.checkpoint import load_checkpoint


def make_network(seed: int = 0, width: int = 5) -> nn.Sequential:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


def prefixed(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda state: {prefix + name: value for name, value in state.items()}


FORMS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "plain": dict,
    "of safetensors": dict,
    "beside other things": lambda state: {"epoch": 3, "optimizer": {"lr": 0.1}, "state_dict": state},
    "under model": lambda state: {"model": state, "args": {"arch": "small"}},
    "under model_state_dict": lambda state: {"model_state_dict": state},
    "twice nested": lambda state: {"model": {"state_dict": state}},
    "of DataParallel": prefixed("module."),
    "of a compiled module": prefixed("_orig_mod."),
    "of Lightning": lambda state: {"state_dict": prefixed("model.")(state)},
    "of both": prefixed("module._orig_mod."),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_usual_form_is_loaded(tmp_path: Path, form: str) -> None:
    source, target = make_network(seed=1), make_network(seed=2)
    path = tmp_path / ("weights.safetensors" if form == "of safetensors" else "weights.pt")
    (save_file if form == "of safetensors" else torch.save)(FORMS[form](source.state_dict()), path)
    load_checkpoint(target, path)
    torch.testing.assert_close(target.state_dict(), source.state_dict(), rtol=0, atol=0)


def test_tied_weights_may_come_under_one_name(tmp_path: Path) -> None:
    def tied(seed: int) -> nn.Module:
        network = make_network(seed, width=3)
        network[2] = nn.Linear(3, 3)
        network[2].weight = network[0].weight
        return network

    source, target = tied(1), tied(2)
    save_model(source, str(tmp_path / "weights.safetensors"))
    load_checkpoint(target, tmp_path / "weights.safetensors")
    torch.testing.assert_close(target.state_dict(), source.state_dict())


def test_prefixes_of_the_network_itself_stay(tmp_path: Path) -> None:
    source, target = (nn.ModuleDict({"model": make_network(seed)}) for seed in (1, 2))
    torch.save(source.state_dict(), tmp_path / "weights.pt")
    load_checkpoint(target, tmp_path / "weights.pt")
    torch.testing.assert_close(target.state_dict(), source.state_dict())


def nested_in_itself(state: dict[str, Tensor]) -> dict[str, Any]:
    content: dict[str, Any] = {"state_dict": {}}
    content["state_dict"]["model"] = content
    return content


ANOTHER = "belongs to another network than --model makes"
UNFIT = r"0\.bias (is|are|came as)"
NO_STATE = "expected a state_dict, name -> tensor"


@pytest.mark.parametrize(
    ("content_of", "refused", "detail"),
    [
        (lambda state: {**state, "9.bias": torch.zeros(2)}, ANOTHER, "unexpected: 9.bias."),
        (lambda state: {**state, "2.bias": torch.zeros(7).char()}, ANOTHER, "other shape: 2.bias is [7], expected [2]."),
        (lambda state: {"2.bias": state["2.bias"]}, ANOTHER, "missing: 0.weight, 0.bias, 1.weight, 1.bias and 4 more."),
        (lambda state: {**state, "0.bias": torch.ones(5).char()}, UNFIT, "is torch.int8, expected torch.float32"),
        (lambda state: {**state, "0.bias": torch.ones(5) * 1j}, UNFIT, "is torch.complex64, expected torch.float32"),
        (lambda state: {**state, "0.bias": torch.ones(5, device="meta")}, UNFIT, "0.bias are a meta tensor"),
        (lambda state: {**state, "0.bias": torch.ones(5).to_sparse()}, UNFIT, "0.bias are a sparse tensor"),
        (lambda state: {**state, "0.bias": [1.0] * 5}, UNFIT, "0.bias came as list; expected a torch tensor"),
        (nested_in_itself, NO_STATE, "holds keys model"),
        (lambda state: {"epoch": 3}, NO_STATE, "holds keys epoch"),
        (lambda state: [1, 2], NO_STATE, "holds a list"),
        (lambda state: {}, NO_STATE, "holds keys ;"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(
    tmp_path: Path, content_of: Callable[[dict[str, Tensor]], Any], refused: str, detail: str
) -> None:
    """load_state_dict would cast some weights silently."""
    target = make_network(seed=2)
    torch.save(content_of(make_network(seed=1).state_dict()), tmp_path / "weights.pt")
    with pytest.raises((ValueError, TypeError), match=rf"weights\.pt:? .*{refused}") as caught:
        load_checkpoint(target, tmp_path / "weights.pt")
    assert detail in str(caught.value)
    torch.testing.assert_close(target.state_dict(), make_network(seed=2).state_dict())


class Trap:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "sprung")


@pytest.mark.parametrize("save", ["torch", "pickle"])
def test_code_in_a_checkpoint_does_not_run(tmp_path: Path, save: str) -> None:
    sprung, path = tmp_path / "sprung", tmp_path / "weights.pt"
    content = {"state_dict": make_network().state_dict(), "trap": Trap(sprung)}
    torch.save(content, path) if save == "torch" else path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=r"holds more than weights.*refused"):
        load_checkpoint(make_network(), path)
    assert not sprung.exists()


@pytest.mark.parametrize("content", [b"import torch\n", b"hello", b"%PDF-1.7", b"\x89HDF\r\n", b"0.1,0.2\n"])
def test_other_kinds_of_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my_module.py").write_bytes(content)
    with pytest.raises(ValueError, match=r"my_module\.py is no checkpoint: expected a state_dict saved by torch\.save"):
        load_checkpoint(make_network(), tmp_path / "my_module.py")


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), legacy=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_raises_only_value_errors(tmp_path: Path, place: float, bit: int, legacy: bool) -> None:
    path, network = tmp_path / "weights.pt", make_network()
    torch.save(network.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with suppress(ValueError):
        load_checkpoint(network, path)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_truncated_checkpoint_is_named(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "weights.pt"
    torch.save(make_network().state_dict(), path, _use_new_zipfile_serialization=not legacy)
    content = path.read_bytes()
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"weights\.pt (is damaged|is no checkpoint|holds more than weights)"):
            load_checkpoint(make_network(), path)


def test_an_archive_that_unpacks_to_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(100_000)}, tmp_path / "plain.pt")
    with ZipFile(tmp_path / "plain.pt") as plain, ZipFile(tmp_path / "bomb.pt", "w", ZIP_DEFLATED) as bomb:
        for name in plain.namelist():
            bomb.writestr(name, plain.read(name))
    with pytest.raises(ValueError, match=r"bomb\.pt is damaged, or no checkpoint \(ValueError: it unpacks to 40\d,\d+ bytes"):
        load_checkpoint(make_network(), tmp_path / "bomb.pt")
