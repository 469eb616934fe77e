"""Modules held by other than modules: the copy follows them, or refuses before the original could run."""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import lates
from tests.networks import Network, draw, network, untouched
from tests.test_taps import X, record

Held = Callable[[nn.Module], Callable[[Tensor], Tensor]]


class Object:
    model: nn.Module

    def __init__(self, part: Callable[[Tensor], Tensor]) -> None:
        self.part = part

    def __call__(self, x: Tensor) -> Tensor:
        return self.part(x)


class Slots:
    __slots__ = ("part",)

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, x: Tensor) -> Tensor:
        return self.part(x)


class Named(NamedTuple):
    part: nn.Module
    scale: float = 1.0


class Closing(Object):
    """Frees something at its end, which the end of a copy must not."""

    def __del__(self) -> None: ...


GLOBAL: dict[str, nn.Module] = {}


def by_list_in_closure(part: nn.Module) -> Callable[[Tensor], Tensor]:
    parts = [part]
    return lambda x: parts[0](x)


def by_recursion(part: nn.Module) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor, steps: int = 2) -> Tensor:
        return step(x, steps - 1) if steps else part(x)

    return step


def by_default_dict(part: nn.Module) -> Callable[[Tensor], Tensor]:
    parts: defaultdict[str, list[nn.Module]] = defaultdict(list)
    parts["only"].append(part)
    return Object(lambda x: parts["only"][0](x))


def by_global(part: nn.Module) -> Callable[[Tensor], Tensor]:
    GLOBAL["part"] = part
    return lambda x: GLOBAL["part"](x)


class Holding(Network):
    """Reaches its body, batch norm and dropout in it, through what `hold` makes of it."""

    def __init__(self, hold: Held) -> None:
        super().__init__()
        self.load_state_dict(network().state_dict())
        vars(self)["held"] = hold(self.body)  # not registered, though it be a module

    def forward(self, images: Tensor) -> Tensor:
        return self.last(vars(self)["held"](images))


@pytest.mark.parametrize(
    "hold",
    [
        Object,
        lambda part: Object(part).__call__,
        lambda part: partial(lambda held, x: held.part(x), Named(part)),
        lambda part: partial(lambda held, x: held.part(x), SimpleNamespace(part=part)),
        lambda part: partial(lambda held, x: held()(x), weakref.ref(part)),
        lambda part: partial(lambda held, x: held[0](x), deque([part])),
        lambda part: lambda x, part=part: part(x),
        lambda part: nn.Sequential(part).forward,
        lambda part: torch.compile(lambda x: part(x), backend="eager"),
        by_list_in_closure,
        by_recursion,
        by_default_dict,
    ],
)
def test_whatever_holds_a_module_a_network_in_training_is_left_alone(hold: Held) -> None:
    expected = lates.extract(network(), [draw()])
    model = Holding(hold).train()
    with untouched(model):
        found = lates.extract(model, [draw()])
    assert list(found.blocks) == list(expected.blocks)
    assert torch.equal(found.logits, expected.logits)


@pytest.mark.parametrize("hold", [by_global, Slots, Closing, lambda part: Object(Object(part))])
@pytest.mark.parametrize("blocks", [None, []])
def test_what_cannot_be_followed_is_refused_before_it_changes_anything(hold: Held, blocks: list[str] | None) -> None:
    model = Holding(hold).train()
    with untouched(model), pytest.raises(RuntimeError, match=r'reaches its module "body" by a way that cannot'):
        lates.calibrate(model, train=[draw()], holdout=[draw(seed=1)], blocks=blocks, progress=False)
    sampled = lates.mc_dropout(model)
    with untouched(model), pytest.raises(RuntimeError, match=r'reaches its module "body" by a way that cannot'):
        lates.calibrate(sampled, train=[draw()], holdout=[draw(seed=1)], blocks=blocks, progress=False)


class Pointing(nn.Module):
    """Points weakly at a method of its own, and at an object that only something outside the tree holds."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        vars(self)["method"] = weakref.WeakMethod(self.step)
        vars(self)["object"] = weakref.ref(OUTSIDE)

    def step(self, x: Tensor) -> Tensor:
        return self.a(x)

    def forward(self, x: Tensor) -> Tensor:
        return vars(self)["object"]().part(vars(self)["method"]()(x))


OUTSIDE = Object(torch.tanh)


def test_weak_references_stay_alive_and_lead_to_the_copy() -> None:
    model = Pointing().eval()
    expected = model(X)
    OUTSIDE.model = model  # so that it holds a module of the tree
    logits, features = record(model, "a")(X)
    assert torch.equal(logits, expected)
    assert len(features["a"]) == 1


def test_objects_that_hold_no_module_stay_shared_also_with_a_list_that_holds_itself() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    calls: list[int] = []
    ring: list[object] = []
    ring.append(ring)
    vars(model)["note"] = SimpleNamespace(ring=ring)
    model.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs)))
    network = record(model)
    network(X)
    assert vars(network.network)["note"] is vars(model)["note"]
    assert calls == [1]
