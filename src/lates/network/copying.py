"""A deep copy of a network that shares its tensors: hooks and flags may change in the copy, the user's model stays as it is.

`copy.deepcopy` follows registered modules, lists, dicts, bound methods, partials and plain objects. It keeps functions as they
are, so a closure would lead from the copy back to the original: closures that hold modules are refused.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from lates.network.blocks import unwrap
from lates.network.pooling import tensors_in


def copy_network(model: nn.Module) -> nn.Module:
    """A deep copy with the same parameters and buffers, without wrappers such as DataParallel or `torch.compile`."""
    root = unwrap(model)
    if any(isinstance(module, torch.jit.ScriptModule) for module in root.modules()):
        raise TypeError(
            "This model, or part of it, is scripted, which hides its blocks. Pass the nn.Module that it was scripted from."
        )
    modules = list(root.modules())
    memo: dict[int, Any] = {id(tensor): tensor for module in modules for tensor in _shared_tensors(module)}
    for module in modules:
        if unwrap(module) is not module:
            memo[id(module)] = copy.deepcopy(unwrap(module), memo)
    try:
        copied = copy.deepcopy(root, memo)
    except (TypeError, RuntimeError, AttributeError) as fault:
        raise TypeError(
            f"This network cannot be copied, and only a copy may run so that the model stays as it is: {fault}. Keep such "
            "objects out of the network's attributes, or define __deepcopy__ for them."
        ) from fault
    tree = set(map(id, modules))
    for name, module in root.named_modules():
        if unwrap(module) is not module:
            continue
        for attribute, value in vars(module).items():
            if (compiled := getattr(value, "_torchdynamo_orig_callable", None)) is not None:
                vars(memo[id(module)])[attribute] = copy.deepcopy(compiled, memo)
            elif _captures_module(value, tree):
                what = "a hook" if attribute.endswith("_hooks") else f'the attribute "{attribute}"'
                raise TypeError(
                    f'The network\'s module "{name}" has {what} that holds modules of the network in a closure or a weak '
                    "reference. A copy would run the original modules instead of its own. Make it a method, or "
                    "functools.partial of one."
                )
    return copied


def _shared_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and results of earlier computations kept in attributes, which deepcopy would refuse."""
    yield from (tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None)
    yield from (tensor for value in vars(module).values() for tensor in tensors_in(value) if not tensor.is_leaf)


def _captures_module(value: Any, tree: set[int]) -> bool:
    """Whether a value leads to modules of the tree by what deepcopy keeps: closures, defaults of functions, weak references."""
    waiting, seen = [(value, False)], set[tuple[int, bool]]()
    while waiting:
        value, captured = waiting.pop()
        if (id(value), captured) in seen:
            continue
        seen.add((id(value), captured))
        parts: Iterable[Any] = ()
        if isinstance(value, nn.Module):
            if captured and id(unwrap(value)) in tree:
                return True
        elif isinstance(value, ref):
            parts, captured = [value()], True
        elif isinstance(value, FunctionType):
            cells = [
                cell.cell_contents for cell in value.__closure__ or () if cell != CellType()
            ]  # some are still empty
            parts, captured = (*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()), True
        elif isinstance(value, MethodType):
            parts = [value.__self__]
        elif isinstance(value, partial):
            parts = (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, dict | list | tuple):
            parts = value.values() if isinstance(value, dict) else value
        waiting.extend((part, captured) for part in parts)
    return False


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Restore the model's buffers and raise if they change: then its own modules ran, reached by a way no copy can follow."""
    before = {name: (buffer, buffer.detach().clone()) for name, buffer in model.named_buffers() if is_dense(buffer)}
    yield
    changed = [name for name, (buffer, value) in before.items() if not _same(buffer, value)]
    if changed:
        with torch.no_grad():
            for buffer, value in before.values():
                buffer.copy_(value)
        raise RuntimeError(
            f"The network reaches its own modules by a way that a copy cannot follow, such as a global variable: its buffer "
            f'"{changed[0]}" changed, and was restored. Let its forward call what it holds as attributes: self.name = module, '
            "or lists, dicts and plain objects of modules."
        )


def is_dense(value: Tensor) -> bool:
    """Whether its values lie one after the other: neither sparse nor nested, nor of a subclass that packs them."""
    return type(value) is Tensor and value.layout == torch.strided and not value.is_nested


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))
