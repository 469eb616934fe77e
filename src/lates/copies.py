"""A copy of a network's module tree that shares its tensors, and the proof that only the copy runs.

Networks keep modules in many places besides their registered children: lists, dicts, methods, closures, objects. The copy
follows them all to the copies of these modules. What it cannot follow would let the copy run, and change, the original:
that is found when it is about to happen, and refused.
"""

import copy
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ProxyTypes, ref

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from lates.blocks import named_modules, unwrap

WRITTEN_INTO = (list, dict, OrderedDict, defaultdict)
"""Containers that are copied whatever they hold, for a network may keep its intermediate results there."""
CONTAINERS = (list, tuple, dict, partial, ref, MethodType, FunctionType, CellType)
NO_HOLDERS = (type, ModuleType, Tensor, *ProxyTypes)

Copies = dict[int, Any]
"""id of an original -> its copy, or itself where it holds no module of the tree"""


def copy_tree(model: nn.Module) -> nn.Module:
    """A copy of the module tree with the same parameters and buffers, wrappers (DataParallel, compile) left out.

    Containers of plain Python are copied too, and what holds modules of the tree (a list, a hook, a method, a closure, an
    object with such attributes) follows to the copies: nothing that runs in the copy may reach or change the original.
    """
    copies: Copies = {}
    modules = list(named_modules(model).values())
    for module in modules:
        copies[id(module)] = object.__new__(type(module))
    for module in modules:
        attributes = {key: _follow(value, copies) for key, value in module.__dict__.items()}
        copies[id(module)].__dict__.update(attributes, _compiled_call_impl=None)
    return copies[id(unwrap(model))]


@contextmanager
def original_at_rest(model: nn.Module, its_copy: nn.Module) -> Iterator[None]:
    """Inside, a module of `model` that is about to run in this thread is an error, before it can change anything.

    So is a module that neither has but that works on the tensors of `model`: the original, where `model` is a copy itself.
    """
    names = {id(module): name for name, module in model.named_modules()}
    allowed = {id(module) for module in its_copy.modules()}
    tensors = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    thread = threading.get_ident()

    def refuse(module: nn.Module, inputs: Any) -> None:
        if id(module) in allowed or threading.get_ident() != thread:
            return
        own = (*module._parameters.values(), *module._buffers.values())
        if id(module) in names or any(id(tensor) in tensors for tensor in own if tensor is not None):
            which = f'module "{names[id(module)]}"' if names.get(id(module)) else f"{type(module).__name__} module"
            raise RuntimeError(
                f"The network reaches its {which} by a way that cannot be followed, such as a global variable or an object "
                "held by another object. Only copies of its modules may run, lest it be changed. Let its forward call what "
                "it holds as attributes: self.name = module, or lists, dicts and plain objects of modules."
            )

    hook = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


def _follow(value: Any, copies: Copies) -> Any:
    """`value` with every module of the tree in it replaced by its copy; what is shared stays shared."""
    known = unwrap(value) if isinstance(value, nn.Module) else value
    if id(known) in copies:
        return copies[id(known)]
    compiled = getattr(value, "_torchdynamo_orig_callable", None) if isinstance(value, FunctionType) else None
    if compiled is not None and _holds_modules(compiled, copies):
        return _follow(compiled, copies)
    if type(value) not in WRITTEN_INTO and not _holds_modules(value, copies):
        return value
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _follow(value.__self__, copies))
    if isinstance(value, FunctionType):
        return _follow_function(value, copies)
    if isinstance(value, partial):
        named = {key: _follow(item, copies) for key, item in value.keywords.items()}
        return partial(_follow(value.func, copies), *(_follow(item, copies) for item in value.args), **named)
    if isinstance(value, ref):
        return ref(_follow(value(), copies))
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [_follow(item, copies) for item in value])
    return _follow_mutable(value, copies)


def _follow_mutable(value: Any, copies: Copies) -> Any:
    """A list, a dict or an object; known before its contents are, which may lead back to it."""
    try:
        own = copy.copy(value)
    except Exception:  # whatever its class raises: it stays as it is, and `original_at_rest` watches
        own = value
    copies[id(value)] = own
    if own is value:
        return value
    if isinstance(value, list):
        own[:] = [_follow(item, copies) for item in value]
    if isinstance(value, dict):
        dict.update(own, {key: _follow(item, copies) for key, item in value.items()})
    if isinstance(attributes := getattr(value, "__dict__", None), dict):
        vars(own).update({key: _follow(item, copies) for key, item in attributes.items()})
    return own


def _follow_function(function: FunctionType, copies: Copies) -> FunctionType:
    """With what its closure and its defaults hold of the tree followed; all else in the closure stays shared."""
    cells = function.__closure__ or ()
    own_cells = tuple(copies.setdefault(id(c), CellType()) if _holds_modules(c, copies) else c for c in cells)
    code, known, name = function.__code__, function.__globals__, function.__name__
    own = copies[id(function)] = FunctionType(code, known, name, None, own_cells)
    for cell, own_cell in zip(cells, own_cells, strict=True):
        if own_cell is not cell:
            own_cell.cell_contents = _follow(cell.cell_contents, copies)
    own.__defaults__ = _follow(function.__defaults__, copies)
    own.__kwdefaults__ = _follow(function.__kwdefaults__, copies)
    own.__dict__.update(function.__dict__)
    return own


def _holds_modules(value: Any, copies: Copies) -> bool:
    """Whether a module of the tree is in a value: itself, in containers and closures, or among an object's attributes.

    Objects in objects are not looked into: they lead far, to a trainer, its loaders and their data, say.
    """
    seen: set[int] = set()

    def holds(part: Any, in_object: bool) -> bool:
        if isinstance(part, nn.Module) and copies.get(id(unwrap(part)), part) is not part:
            return True
        is_object = not isinstance(part, CONTAINERS)
        if id(part) in seen or (is_object and in_object):
            return False
        seen.add(id(part))
        return any(holds(item, in_object or is_object) for item in _parts(part))

    return holds(value, False)


def _parts(value: Any) -> Iterable[Any]:
    """What a value holds, as far as it can be followed."""
    if isinstance(value, MethodType):
        return (value.__self__,)
    if isinstance(value, FunctionType):
        return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    if isinstance(value, CellType):
        return () if _is_empty(value) else (value.cell_contents,)
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, ref):
        return (value(),)
    if isinstance(value, NO_HOLDERS) or hasattr(type(value), "__del__"):  # the end of a copy must not free anything
        return ()
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    attributes = getattr(value, "__dict__", None)
    return (*items, *(attributes.values() if isinstance(attributes, dict) else ()))


def _is_empty(cell: CellType) -> bool:
    return cell == CellType()
