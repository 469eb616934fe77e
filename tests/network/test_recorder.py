"""The recorded copy computes what the network computes, by modules of its own, and leaves no trace on the original."""

import copy
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, update_wrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import lates
from lates.network.recorder import RecordedNetwork, copy_network, switch_to_evaluation
from tests.networks import Network, draw, network, untouched

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


# Ways to reach a module

Hold = Callable[[nn.Module], Callable[[Tensor], Tensor]]


class InLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.nested: list[list[nn.Module]] = [[self.a]]
        self.by_name = {"b": (self.b,)}

    def forward(self, x: Tensor) -> Tensor:
        return self.by_name["b"][0](self.nested[0][0](x))


class ByMethodAndHook(nn.Module):
    """Reads a layer's output through a hook of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Tensor] = {}
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.a.register_forward_hook(self.keep)
        self.step = partial(ByMethodAndHook.twice, self, factor=2.0)

    def keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self.seen["a"] = output

    def twice(self, x: Tensor, factor: float) -> Tensor:
        return factor * self.b(x)

    def forward(self, x: Tensor) -> Tensor:
        self.a(x)
        return self.step(self.seen["a"])


def with_compiled_child() -> nn.Module:
    model = InLists()
    wrapped = compiled(model.a)
    model.add_module("a", wrapped)
    model.nested[0] = [wrapped]
    return model


def normalised() -> nn.Module:
    model = nn.Sequential()
    model.a, model.b = spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 4)
    model(X)  # leaves a result of autograd behind
    return model


def refuse_to_run(module: nn.Module, inputs: Any) -> None:
    raise AssertionError("a module of the original ran")


@pytest.mark.parametrize("make", [InLists, ByMethodAndHook, with_compiled_child, normalised])
def test_a_copy_runs_its_own_modules_however_they_are_reached(make: Callable[[], nn.Module]) -> None:
    model = make().eval()
    expected = model(X)
    vars(model)["seen"] = {}
    recorded = record(model, "a", "b")
    for part in model.modules():
        part.register_forward_pre_hook(refuse_to_run)
    logits, features = recorded(X)
    assert torch.equal(logits, expected)
    assert [len(features[name]) for name in ("a", "b")] == [1, 1]
    assert vars(model)["seen"] == {}, "a copy writes nothing into the original"


class Holding(Network):
    """Reaches its body, batch norm and dropout in it, through what `hold` makes of it."""

    def __init__(self, hold: Hold) -> None:
        super().__init__()
        self.load_state_dict(network().state_dict())
        vars(self)["holder"] = hold(self.body)  # not registered, though it be a module

    def forward(self, images: Tensor) -> Tensor:
        return self.last(vars(self)["holder"](images))


@pytest.mark.parametrize(
    "hold",
    [
        lambda part: partial(lambda holder, x: holder.part(x), SimpleNamespace(part=part)),
        lambda part: nn.Sequential(part).forward,
    ],
)
def test_a_network_in_training_is_left_alone_whatever_holds_its_modules(hold: Hold) -> None:
    expected = lates.extract(network(), [draw()])
    model = Holding(hold).train()
    with untouched(model):
        features = lates.extract(model, [draw()])
    assert list(features.blocks) == list(expected.blocks)
    assert torch.equal(features.logits, expected.logits)


GLOBAL: dict[str, nn.Module] = {}


def by_global(part: nn.Module) -> Callable[[Tensor], Tensor]:
    GLOBAL["part"] = part
    return lambda x: GLOBAL["part"](x)


@pytest.mark.parametrize(
    "hold",
    [
        lambda part: lambda x: part(x),
        lambda part: partial(lambda reference, x: reference()(x), weakref.ref(part)),
        by_global,
    ],
)
def test_a_network_that_would_run_the_original_s_modules_is_refused_before_it_does(hold: Hold) -> None:
    model = Holding(hold).train()
    with untouched(model), pytest.raises(TypeError, match=r"reaches its \w+ by a way that a copy cannot follow"):
        lates.calibrate(model, train=[draw()], holdout=[draw(seed=1)], progress=False)


def test_what_cannot_be_copied_is_named() -> None:
    model = network()
    vars(model)["lock"] = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be copied.*lock.*Keep such objects out"):
        lates.extract(model, [draw()])


class Wrapped(nn.Module):
    """A forward that a wrapper replaced, its signature kept, as some libraries do to move inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        vars(self)["forward"] = update_wrapper(partial(Wrapped.around, self), Wrapped.forward)

    def around(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.a(x * attention_mask)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor: ...


def test_a_wrapped_forward_keeps_its_signature() -> None:
    copied = copy_network(Wrapped())
    assert list(inspect.signature(copied.forward).parameters) == ["self", "x", "attention_mask"]
