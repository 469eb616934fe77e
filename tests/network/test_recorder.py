"""The recorded copy computes what the network computes, records what its blocks put out, and leaves no trace on it."""

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lates.network.recorder import RecordedNetwork, switch_to_evaluation

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


def whole(output: Any, mask: Tensor | None) -> Tensor:
    return output.clone()


def record(model: nn.Module, *names: str) -> RecordedNetwork:
    return RecordedNetwork(model, dict.fromkeys(names, whole))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.relu = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.relu(self.norm(self.first(x)))))


def test_an_output_is_recorded_before_it_is_changed_in_place() -> None:
    model = Plain().eval()
    logits, features = record(model, "norm")(X)
    assert torch.equal(features["norm"][0], model.norm(model.first(X)))
    assert bool((features["norm"][0] < 0).any())
    assert torch.equal(logits, model(X))


def test_each_call_of_a_block_gives_one_entry() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model.append(model[1])
    _, features = record(model, "1")(X)
    first = model[0](X).tanh()
    assert torch.equal(torch.stack(features["1"]), torch.stack([first, model[2](first).tanh()]))


def test_the_network_keeps_its_hooks_flags_and_modules() -> None:
    model = Plain().train()
    model.norm.eval()
    calls: list[int] = []
    handle = model.first.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    before = [dict(part.__dict__) for part in model.modules()]
    flags = [part.training for part in model.modules()]
    network = switch_to_evaluation(record(model, "first", "last"), dropout=True)
    network(X)
    assert calls == [6], "hooks that the user set go on working in the copy"
    assert [part.training for part in model.modules()] == flags
    assert [list(part._forward_hooks) for part in model.modules()] == [list(d["_forward_hooks"]) for d in before]
    assert all(part.__dict__ == dictionary for part, dictionary in zip(model.modules(), before, strict=True))
    handle.remove()
    assert not model.first._forward_hooks


def test_evaluation_leaves_dropout_alone_on_if_asked() -> None:
    network = switch_to_evaluation(record(Plain().train()), dropout=True)
    assert [name for name, part in network.network.named_modules() if part.training] == ["drop"]
    assert not any(part.training for part in switch_to_evaluation(network, dropout=False).modules())


class Tied(nn.Module):
    """The weight of `up` is that of `down`, and one module stands in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 4), nn.Linear(4, 4)
        self.up.weight = self.down.weight
        norm = nn.BatchNorm1d(4)
        self.left, self.right = nn.Sequential(self.down, norm), nn.Sequential(self.up, norm)

    def forward(self, x: Tensor) -> Tensor:
        return self.right(self.left(x))


def test_tensors_are_shared_until_the_copy_is_cast_and_stay_tied_then() -> None:
    model = Tied().eval()
    network, tensors = record(model, "left"), [*model.parameters(), *model.buffers()]
    assert all(a is b for a, b in zip([*network.parameters(), *network.buffers()], tensors, strict=True))
    network.to(torch.float64)
    assert {tensor.dtype for tensor in network.state_dict().values() if tensor.is_floating_point()} == {torch.float64}
    assert all(a is b for a, b in zip([*model.parameters(), *model.buffers()], tensors, strict=True))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    tree = network.network
    assert isinstance(tree, Tied)
    assert tree.up.weight.data_ptr() == tree.down.weight.data_ptr()
    assert tree.left[1] is tree.right[1]
    assert torch.allclose(network(X.double())[0].float(), model(X), atol=1e-6)


def test_scripted_models_are_refused() -> None:
    scripted = torch.jit.script(nn.Linear(4, 4))
    for model in (scripted, nn.Sequential(scripted, nn.Linear(4, 3))):
        with pytest.raises(TypeError, match=r"scripted.*Pass the nn.Module"):
            record(model)


# Wrappers, copies, threads


def compiled(model: nn.Module) -> nn.Module:
    wrapper = torch.compile(model, backend="eager")
    assert isinstance(wrapper, nn.Module)
    return wrapper


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("wrap", [nn.DataParallel, nn.parallel.DistributedDataParallel, compiled])
def test_wrapped_models_that_have_run_are_unwrapped(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = Plain().eval()
    wrapped = wrap(model).cpu()  # DataParallel moves the network to a GPU where there is one
    expected = wrapped(X)
    network = record(wrapped, "norm")
    logits, features = network(X)
    assert torch.equal(logits, expected)
    assert len(features["norm"]) == 1
    assert all(a is b for a, b in zip(network.parameters(), model.parameters(), strict=True))


def test_the_copy_compiles_whole_and_copies_deeply() -> None:
    network = record(Plain().eval(), "norm", "first").eval()
    logits, features = network(X)
    for other in (torch.compile(network, backend="eager", fullgraph=True), copy.deepcopy(network)):
        again, recorded = other(X)
        assert torch.equal(again, logits)
        assert torch.equal(recorded["norm"][0], features["norm"][0])


def test_threads_that_share_a_network_do_not_mix_their_records() -> None:
    barrier = threading.Barrier(4)

    class Meeting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            barrier.wait()
            return x

    network = record(nn.Sequential(nn.Linear(4, 4), Meeting(), nn.Linear(4, 3), Meeting()).eval(), "0", "2")

    def alone(x: Tensor) -> Tensor:
        _, features = network(x)
        assert [len(entries) for entries in features.values()] == [1, 1]
        return features["0"][0]

    inputs = [X + i for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        recorded = list(pool.map(alone, inputs))
    first = network.network.get_submodule("0")
    assert all(torch.equal(features, first(x)) for features, x in zip(recorded, inputs, strict=True))


def test_a_failed_forward_leaves_nothing_for_the_next() -> None:
    network = record(Plain().eval(), "first")
    with pytest.raises(RuntimeError):
        network(torch.zeros(2, 5))
    assert len(network(X)[1]["first"]) == 1


# Masks


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.inner(tokens).mean(1)


class Starred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.inner(inputs[0] + inputs[1][:, :, None]).mean(1)


class Padded(nn.Module):
    """Hands a mask that is True, or -inf, at padding to PyTorch's own encoder layer."""

    def __init__(self, padding: Tensor) -> None:
        super().__init__()
        self.inner, self.padding = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), padding

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens, src_key_padding_mask=self.padding)[:, 0]


TOKENS, MASK = torch.zeros(2, 3, 4), torch.tensor([[1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize(
    ("model", "inputs", "named", "expected"),
    [
        (Masked(), (TOKENS, MASK), {}, MASK),
        (Masked(), (TOKENS,), {"attention_mask": MASK}, MASK),
        (Masked(), (TOKENS,), {}, None),
        (Starred(), (TOKENS, MASK), {}, None),
        (Padded(MASK == 0), (TOKENS,), {}, MASK.bool()),
        (Padded(torch.zeros(2, 3).masked_fill(MASK == 0, -torch.inf)), (TOKENS,), {}, MASK.bool()),
    ],
)
def test_the_mask_of_the_tokens_reaches_the_reduction(
    model: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], expected: Tensor | None
) -> None:
    seen: list[Tensor | None] = []

    def look(output: Any, mask: Tensor | None) -> Tensor:
        seen.append(mask)
        return output.mean(1)

    RecordedNetwork(model, {"inner": look})(*inputs, **named)
    (mask,) = seen
    assert mask is None if expected is None else mask is not None and torch.equal(mask, expected)
