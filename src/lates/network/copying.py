"""A deep copy of a network that shares its tensors: hooks and flags may change in the copy, the user's model stays as it is.

`copy.deepcopy` follows registered modules, lists, dicts, bound methods, partials and plain objects. It keeps functions as they
are, so a closure or a global variable may lead from the copy back to the original; `refuse_originals` notices that.
"""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from lates.network.blocks import unwrap
from lates.network.pooling import tensors_in


def copy_network(model: nn.Module) -> nn.Module:
    """A deep copy with the same parameters and buffers, without wrappers such as DataParallel or `torch.compile`."""
    root = unwrap(model)
    modules = list(root.modules())
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        raise TypeError(
            "This model, or part of it, is scripted, which hides its blocks. Pass the nn.Module that it was scripted from."
        )
    memo: dict[int, Any] = {id(tensor): tensor for module in modules for tensor in _shared_tensors(module)}
    try:
        for module in modules:
            if unwrap(module) is not module:
                memo[id(module)] = copy.deepcopy(unwrap(module), memo)
        return copy.deepcopy(root, memo)
    except (TypeError, RuntimeError, AttributeError) as fault:
        raise TypeError(
            f"This network cannot be copied, and only a copy may run so that the model stays as it is: {fault}. Keep such "
            "objects out of the network's attributes, or define __deepcopy__ for them."
        ) from fault


def _shared_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and results of earlier computations kept in attributes, which deepcopy would refuse."""
    yield from (tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None)
    yield from (tensor for value in vars(module).values() for tensor in tensors_in(value) if not tensor.is_leaf)


@contextmanager
def refuse_originals(model: nn.Module) -> Iterator[None]:
    """Within, an error where this thread is about to run a module of `model` itself, which a copy of it should not reach."""
    originals, thread = set(model.modules()), threading.get_ident()

    def refuse(module: nn.Module, inputs: Any) -> None:
        if module in originals and threading.get_ident() == thread:
            raise TypeError(
                f"The network reaches its {type(module).__name__} by a way that a copy cannot follow, such as a closure, a "
                "weak reference or a global variable. Let it call what it holds as attributes: self.name = module, or lists, "
                "dicts and plain objects of modules."
            )

    handle = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
