"""A copy of a network's module tree that shares its tensors, and the proof that only the copy runs.

Networks keep modules in many places besides their registered children: lists, dicts, methods, closures, objects. The copy
follows them all to the copies of these modules. What it cannot follow would let the copy run, and change, the original:
that is found when it is about to happen, and refused.
"""

import copy
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any
from weakref import ProxyTypes, WeakKeyDictionary, WeakMethod, ref

from torch import Tensor, nn

from lates.blocks import named_modules, unwrap

WRITTEN_INTO = (list, deque, dict, OrderedDict, defaultdict)
"""Containers that are copied whatever they hold, for a network may keep its intermediate results there."""
CONTAINERS = (list, deque, tuple, dict, partial, MethodType, FunctionType, CellType)
LEAVES = (str, bytes, int, float, NoneType, Tensor, type, ModuleType, *ProxyTypes)
"""What holds no module, or none that may be replaced."""

Copies = dict[int, Any]
"""id of an original -> its copy, or itself where it holds no module of the tree"""
ORIGINALS: WeakKeyDictionary[nn.Module, ref[nn.Module]] = WeakKeyDictionary()
"""the root of a copied tree -> that of its original"""


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
        hooks = attributes["_forward_pre_hooks"]
        for key, hook in list(hooks.items()):
            if isinstance(hook, AtRest):  # another thread's, for the original
                del hooks[key]
        copies[id(module)].__dict__.update(attributes, _compiled_call_impl=None)
    root = copies[id(unwrap(model))]
    ORIGINALS[root] = ref(unwrap(model))
    return root


class AtRest:
    """A hook that refuses to let its module run in the thread that asked for it, before anything can change."""

    def __init__(self, name: str) -> None:
        self.name, self.thread = name, threading.get_ident()

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if threading.get_ident() == self.thread:
            which = f'module "{self.name}"' if self.name else "outermost module"
            raise RuntimeError(
                f"The network reaches its {which} by a way that cannot be followed, such as a global variable, a cached "
                "function or an object held by another object. Only copies of its modules may run, lest it be changed. Let "
                "its forward call what it holds as attributes: self.name = module, or lists, dicts and plain objects of "
                "modules."
            )


@contextmanager
def originals_at_rest(copied: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, a module from which one of these trees was copied, or that one's original, must not run in this thread."""
    with ExitStack() as stack:
        for root in copied:
            while (original := ORIGINALS.get(root)) is not None and (root := original()) is not None:
                for name, module in root.named_modules():
                    stack.callback(module.register_forward_pre_hook(AtRest(name)).remove)
        yield


def _follow(value: Any, copies: Copies) -> Any:
    """`value` with every module of the tree in it replaced by its copy; what is shared stays shared."""
    if isinstance(value, LEAVES):
        return value
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
        own = partial(_follow(value.func, copies), *(_follow(item, copies) for item in value.args), **named)
        vars(own).update({key: _follow(item, copies) for key, item in vars(value).items()})
        return own
    if isinstance(value, ref):
        return type(value)(_follow(value(), copies))
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [_follow(item, copies) for item in value])
    return _follow_mutable(value, copies)


def _follow_mutable(value: Any, copies: Copies) -> Any:
    """A list, a dict or an object; known before its contents are, which may lead back to it."""
    try:
        own = copy.copy(value)
    except Exception:  # whatever its class raises: it stays as it is, and the original is watched
        own = value
    copies[id(value)] = own
    if own is value:
        return value
    if isinstance(value, list | deque):
        own.clear()
        own.extend(_follow(item, copies) for item in value)
    if isinstance(value, dict):
        dict.update(own, {key: _follow(item, copies) for key, item in value.items()})
    if isinstance(attributes := getattr(value, "__dict__", None), dict):
        vars(own).update({key: _follow(item, copies) for key, item in attributes.items()})
    return own


def _follow_function(function: FunctionType, copies: Copies) -> FunctionType:
    """With what its closure, defaults and attributes hold of the tree followed; all else in the closure stays shared."""
    cells = function.__closure__ or ()
    own_cells = tuple(copies.setdefault(id(c), CellType()) if _holds_modules(c, copies) else c for c in cells)
    code, known, name = function.__code__, function.__globals__, function.__name__
    own = copies[id(function)] = FunctionType(code, known, name, None, own_cells)
    for cell, own_cell in zip(cells, own_cells, strict=True):
        if own_cell is not cell:
            own_cell.cell_contents = _follow(cell.cell_contents, copies)
    own.__defaults__ = _follow(function.__defaults__, copies)
    own.__kwdefaults__ = _follow(function.__kwdefaults__, copies)
    own.__dict__.update({key: _follow(item, copies) for key, item in function.__dict__.items()})
    return own


def _holds_modules(value: Any, copies: Copies) -> bool:
    """Whether a module of the tree is in a value: itself, in containers and closures, or among an object's attributes.

    Objects in objects are not looked into: they lead far, to a trainer, its loaders and their data, say.
    """
    seen: set[tuple[int, bool]] = set()

    def is_of_the_tree(part: Any) -> bool:
        return isinstance(part, nn.Module) and copies.get(id(unwrap(part)), part) is not part

    def holds(part: Any, in_object: bool) -> bool:
        if isinstance(part, LEAVES):
            return False
        if isinstance(part, ref):  # what else it may point at would have no other holder among the copies
            target = getattr(part(), "__self__", None) if type(part) is WeakMethod else part()
            return type(part) in (ref, WeakMethod) and is_of_the_tree(target)
        if is_of_the_tree(part):
            return True
        is_object = not isinstance(part, CONTAINERS)
        if (id(part), in_object) in seen or (is_object and in_object):
            return False
        seen.add((id(part), in_object))
        return any(holds(item, in_object or is_object) for item in _parts(part))

    return holds(value, False)


def _parts(value: Any) -> Iterable[Any]:
    """What a value holds, as far as it can be followed."""
    if isinstance(value, MethodType):
        return (value.__self__,)
    if isinstance(value, FunctionType):
        return (*(value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    if isinstance(value, CellType):
        try:
            return (value.cell_contents,)
        except ValueError:  # still empty
            return ()
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if hasattr(type(value), "__del__"):  # the end of a copy must not free anything
        return ()
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | deque | tuple) else ()
    attributes = getattr(value, "__dict__", None)
    return (*items, *(attributes.values() if isinstance(attributes, dict) else ()))
