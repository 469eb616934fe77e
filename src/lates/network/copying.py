"""A deep copy of a network that shares its tensors: hooks and flags may change in the copy, the user's model stays as it is.

`copy.deepcopy` follows registered modules, lists, dicts, bound methods, partials and plain objects. It keeps functions as they
are, so a closure would lead from the copy back to the original: closures that hold modules are refused.
"""

import copy
from collections.abc import Iterator
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
    for name, module in root.named_modules():
        if unwrap(module) is not module:
            continue
        for attribute, value in vars(module).items():
            if (compiled := getattr(value, "_torchdynamo_orig_callable", None)) is not None:
                vars(memo[id(module)])[attribute] = copy.deepcopy(compiled, memo)
            else:
                _refuse_closures(name, attribute, value, {id(each) for each in modules})
    return copied


def _shared_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and results of earlier computations kept in attributes, which deepcopy would refuse."""
    yield from (tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None)
    yield from (tensor for value in vars(module).values() for tensor in tensors_in(value) if not tensor.is_leaf)


def _refuse_closures(module: str, attribute: str, value: Any, tree: set[int]) -> None:
    if any(_leads_to(part, tree) for part in _kept_by_deepcopy(value)):
        what = "a hook" if attribute.endswith("_hooks") else f'the attribute "{attribute}"'
        raise TypeError(
            f'The network\'s module "{module}" has {what} that holds modules of the network in a closure or a weak reference. '
            "A copy would run the original modules instead of its own. Make it a method, or functools.partial of one."
        )


def _kept_by_deepcopy(value: Any) -> Iterator[Any]:
    """What a copy would share with the original: closures and defaults of functions, and targets of weak references."""
    if isinstance(value, ref):
        yield value()
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
    elif isinstance(value, partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _kept_by_deepcopy(part)
    elif isinstance(value, dict):
        for item in value.values():
            if isinstance(item, ref | FunctionType | partial):
                yield from _kept_by_deepcopy(item)


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _leads_to(value: Any, tree: set[int]) -> bool:
    """Whether a captured value is a module of the tree, a method of one, or a container with one in it."""
    if isinstance(value, MethodType):
        value = value.__self__
    if isinstance(value, nn.Module):
        return id(unwrap(value)) in tree
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(item, nn.Module | MethodType) and _leads_to(item, tree) for item in items)


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
