"""Whatever way a network reaches its modules, the recorded copy reaches its own and leaves the original alone."""

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import lates
from lates.copies import copy_tree, originals_at_rest
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
