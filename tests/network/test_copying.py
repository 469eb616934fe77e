"""Whatever way a network reaches its modules, the recorded copy runs its own, or is refused; the original stays as it is."""

import inspect
import threading
import weakref
from collections.abc import Callable
from functools import partial, update_wrapper
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import lates
from lates.network.copying import copy_network
from tests.network.test_recorder import X, compiled, record
from tests.networks import Network, draw, network, untouched

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
