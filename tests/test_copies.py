"""Whatever way a network reaches its modules, the recorded copy reaches its own and leaves the original alone."""

import inspect
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial, update_wrapper
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import lates
from lates.copies import copy_tree, originals_at_rest
from tests.networks import Network, draw, network, untouched
from tests.test_taps import X, compiled, record


class InLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))
        self.nested: list[list[nn.Module]] = [[self.a], [self.b]]
        self.by_name = {"c": (self.c,)}

    def forward(self, x: Tensor) -> Tensor:
        return self.d(self.by_name["c"][0](self.nested[1][0](self.nested[0][0](x))))


class ByMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.d = nn.Linear(4, 4), nn.Linear(4, 4)
        self.body = self.double_step
        self.step = partial(ByMethod.twice, self, factor=2.0)

    def double_step(self, x: Tensor) -> Tensor:
        return self.step(self.a(x))

    def twice(self, x: Tensor, factor: float) -> Tensor:
        return factor * self.d(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Reading(nn.Linear):
    """Applied to what somebody put into a shared dictionary."""

    def __init__(self, seen: dict[str, Tensor]) -> None:
        super().__init__(4, 4)
        self.seen = seen

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(self.seen["a"])


class ByHook(nn.Module):
    """Reads a layer's output through a hook of its own and a dictionary shared with a child."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, Tensor] = {}
        self.a, self.d = nn.Linear(4, 4), Reading(self._seen)
        self.a.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._seen["a"] = output

    def forward(self, x: Tensor) -> Tensor:
        return self.d(self.a(x) * 0)


class WithTeacher(nn.Module):
    """Calls a module that PyTorch does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.hidden = [nn.Linear(4, 4)]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.hidden[0](x))


def with_compiled_forward() -> nn.Module:
    model = InLists()
    model.forward = torch.compile(model.forward, backend="eager")
    return model


def compiled_child_in_a_list() -> nn.Module:
    model = InLists()
    wrapped = compiled(model.a)
    model.add_module("a", wrapped)
    model.nested[0] = [wrapped]
    return model


def traced() -> nn.Module:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (InLists, "a"),
        (InLists, "b"),
        (InLists, "c"),
        (ByMethod, "a"),
        (ByMethod, "d"),
        (ByHook, "a"),
        (ByHook, "d"),
        (with_compiled_forward, "d"),
        (compiled_child_in_a_list, "a"),
        (traced, "0"),
    ],
)
def test_whatever_way_a_module_is_reached_the_copy_runs_its_own(make: Callable[[], nn.Module], name: str) -> None:
    model = make().eval()
    expected = model(X)
    network = record(model, name)
    logits, features = network(X)
    assert torch.equal(logits, expected)
    assert len(features[name]) == 1
    for part in model.modules():
        part.register_forward_pre_hook(refuse_to_run)
    assert torch.equal(network(X)[0], expected)


def refuse_to_run(module: nn.Module, inputs: Any) -> None:
    raise AssertionError("a module of the original ran")


def test_nothing_that_runs_in_the_copy_writes_into_the_original() -> None:
    model = ByHook().eval()
    record(model, "a")(X)
    assert model._seen == {}


def test_parametrised_layers_are_copied() -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 3)).eval()
    logits, features = record(model, "0")(X)
    assert torch.equal(logits, model(X))
    assert torch.equal(features["0"][0], model[0](X))


def test_a_module_outside_the_tree_runs_as_it_is() -> None:
    model = WithTeacher()
    logits, features = record(model, "last")(X)
    assert torch.equal(logits, model(X))
    assert torch.equal(features["last"][0], logits)


# Modules held by other than modules

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


class Wrapped(nn.Module):
    """A forward that a wrapper replaced, its signature kept, as some libraries do to move inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.forward = update_wrapper(partial(Wrapped.around, self), Wrapped.forward)  # type: ignore[method-assign]

    def around(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.a(x * attention_mask)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor: ...


def test_a_wrapped_forward_keeps_its_signature() -> None:
    copied = copy_tree(Wrapped())
    assert list(inspect.signature(copied.forward).parameters) == ["self", "x", "attention_mask"]


@pytest.mark.slow
def test_a_forward_compiled_as_one_graph_is_not_compiled_anew_for_every_batch() -> None:
    class Compiled(nn.Sequential):
        @torch.compile(fullgraph=True, backend="eager")
        def forward(self, input: Tensor) -> Tensor:
            return self[1](self[0](input))

    model = Compiled(nn.Linear(4, 8), nn.Linear(8, 3))
    batches = [(torch.randn(10, 4), torch.arange(10) % 3) for _ in range(12)]
    holdout = [(x + 0.1, y) for x, y in batches]
    calibrated = lates.calibrate(model, train=batches, holdout=holdout, budget=None, progress=False)
    assert list(calibrated.contributions) == ["0", "head"]


class OwnCall(nn.Sequential):
    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)


def test_a_network_with_a_call_of_its_own_can_be_calibrated() -> None:
    model = OwnCall(nn.Linear(4, 4), nn.Linear(4, 3))
    assert lates.extract(model, [(X, torch.arange(len(X)) % 3)]).classes == 3


def test_a_copy_keeps_none_of_the_hooks_that_watch_its_original() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    copied = copy_tree(model)
    with originals_at_rest([copied]):
        again = copy_tree(model)
        with pytest.raises(RuntimeError, match="reaches its outermost module"):
            model(X)
        assert torch.equal(again(X), copied(X))
    assert torch.equal(model(X), again(X))


def test_objects_that_hold_no_module_stay_shared() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    calls: list[int] = []
    vars(model)["note"] = Object(torch.tanh)
    model.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs)))
    network = record(model)
    network(X)
    assert vars(network.network)["note"] is vars(model)["note"]
    assert calls == [1]
