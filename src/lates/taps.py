"""Record what the blocks of a network put out, without touching the network.

A recorded network is a shallow copy of the module tree: new modules, the same parameters and buffers. Recorders hang on
the copy as forward hooks, so the user's model keeps its hooks, flags and classes whatever happens, and the copy compiles,
exports, deep-copies and moves between devices like any module.
"""

import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lates.batches import read_logits
from lates.blocks import named_modules, unwrap

MASK = "attention_mask"

Reduce = Callable[[Any, Tensor | None], Tensor]
"""(what a block put out, the attention mask [n, tokens] or None) -> features [n, width]"""


class Tape(threading.local):
    """What the recorders of one forward pass saw; one tape per thread, so that threads may share a model."""

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self.features: dict[str, list[Tensor]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tape":
        return memo.setdefault(id(self), Tape())

    def __reduce__(self) -> tuple[type["Tape"], tuple[()]]:
        return Tape, ()


class Recorder:
    """A forward hook that reduces a block's output at once, before anything can change it in place."""

    def __init__(self, name: str, reduce: Reduce, tape: Tape) -> None:
        self.name, self.reduce, self.tape = name, reduce, tape

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.tape.features.setdefault(self.name, []).append(self.reduce(output, self.tape.mask))


class RecordedNetwork(nn.Module):
    """A copy of `model` whose forward gives its logits [n, classes] and, per block, the list of features recorded.

    The list has one entry per call of the block. Parameters and buffers are shared with `model` until the copy is moved or
    cast; then the copy has its own and `model` stays where it was.
    """

    def __init__(self, model: nn.Module, reduces: Mapping[str, Reduce]) -> None:
        super().__init__()
        if isinstance(model, torch.jit.ScriptModule):
            raise TypeError("A scripted model hides its blocks. Pass the nn.Module that it was scripted from.")
        self.network = copy_tree(model)
        self.tape = Tape()
        modules = named_modules(self.network)
        for name, reduce in reduces.items():
            modules[name].register_forward_hook(Recorder(name, reduce, self.tape))

    def forward(self, *inputs: Any, **named_inputs: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
        self.tape.mask, self.tape.features = named_inputs.get(MASK), {}
        try:
            logits = read_logits(self.network(*inputs, **named_inputs))
            return logits, self.tape.features
        finally:
            self.tape.mask, self.tape.features = None, {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RecordedNetwork":
        """Move or cast the copy alone: by default PyTorch would write through the shared parameters into `model`."""
        converted: dict[int, Tensor] = {}

        def convert_once(tensor: Tensor) -> Tensor:
            return converted.setdefault(id(tensor), fn(tensor))

        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            return super()._apply(convert_once, recurse)
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)


def copy_tree(model: nn.Module) -> nn.Module:
    """A copy of the module tree with the same parameters and buffers, wrappers (DataParallel, compile) left out."""
    copies: dict[int, nn.Module] = {}

    def copy_module(module: nn.Module) -> nn.Module:
        module = unwrap(module)
        if id(module) not in copies:
            copy = object.__new__(type(module))
            copies[id(module)] = copy
            own = dict(module.__dict__)
            for key, value in own.items():
                if isinstance(value, dict) and key.startswith("_"):
                    own[key] = value.copy()
            own["_compiled_call_impl"] = None
            own["_modules"] = {
                name: None if child is None else copy_module(child) for name, child in module._modules.items()
            }
            copy.__dict__.update(own)
        return copies[id(module)]

    root = copy_module(model)
    for copy in copies.values():
        for key, value in copy.__dict__.items():
            if key not in ("_modules", "_parameters", "_buffers"):
                copy.__dict__[key] = _follow(value, copies)
    return root


def _follow(value: Any, copies: dict[int, nn.Module]) -> Any:
    """Attributes that hold modules beside the tree, or methods bound to them, follow to the copies."""
    if isinstance(value, nn.Module):
        return copies.get(id(value), value)
    if isinstance(value, types.MethodType) and id(value.__self__) in copies:
        return types.MethodType(value.__func__, copies[id(value.__self__)])
    if type(value) is list and any(isinstance(item, nn.Module) for item in value):
        return [_follow(item, copies) for item in value]
    if type(value) is tuple and any(isinstance(item, nn.Module) for item in value):
        return tuple(_follow(item, copies) for item in value)
    if type(value) is dict and any(isinstance(item, nn.Module) for item in value.values()):
        return {key: _follow(item, copies) for key, item in value.items()}
    return value


def switch_to_evaluation(network: RecordedNetwork, dropout: bool) -> RecordedNetwork:
    """Evaluation mode, with the dropout layers alone switched on if asked."""
    network.eval()
    for module in network.modules():
        if dropout and isinstance(module, nn.modules.dropout._DropoutNd):
            module.train()
    return network
