"""Record what the blocks of a network put out, without touching the network.

A recorded network is a shallow copy of the module tree: new modules, the same parameters and buffers. Recorders hang on
the copy as forward hooks, so the user's model keeps its hooks, flags and classes whatever happens, and the copy compiles,
exports, deep-copies and moves between devices like any module.
"""

import inspect
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lates.batches import read_logits
from lates.blocks import choose_blocks, named_modules
from lates.copies import copy_tree

MASK = "attention_mask"
"""The network's input that marks its tokens, 1, and its padding, 0."""
PADDING = "src_key_padding_mask"
"""The same, reversed, as PyTorch's own encoder layers take it: True or -inf marks padding."""

DROPOUTS = (
    nn.modules.dropout._DropoutNd,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.RNNBase,
)

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

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        padding = named.get(PADDING)
        mask = self.tape.mask if padding is None else padding == 0  # False, or 0 beside -inf
        self.tape.features.setdefault(self.name, []).append(self.reduce(output, mask))


class RecordedNetwork(nn.Module):
    """A copy of `model` whose forward gives its logits [n, classes] and, per block, the list of features recorded.

    The list has one entry per call of the block. Parameters and buffers are shared with `model` until the copy is moved or
    cast; then the copy has its own and `model` stays where it was.
    """

    def __init__(self, model: nn.Module, reduces: Mapping[str, Reduce]) -> None:
        super().__init__()
        if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
            raise TypeError(
                "This model, or part of it, is scripted, which hides its blocks. Pass the nn.Module that it was scripted from."
            )
        self.network = copy_tree(model)
        self.tape = Tape()
        names = list(inspect.signature(self.network.forward).parameters)
        self.mask_place = names.index(MASK) if MASK in names else None
        self.blocks = tuple(choose_blocks(self.network, list(reduces)))
        modules = named_modules(self.network)
        for name in self.blocks:
            modules[name].register_forward_hook(Recorder(name, reduces[name], self.tape), with_kwargs=True)

    def forward(self, *inputs: Any, **named_inputs: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
        place = self.mask_place
        self.tape.mask = named_inputs.get(MASK) if place is None or place >= len(inputs) else inputs[place]
        self.tape.features = {}
        try:
            logits = read_logits(self.network(*inputs, **named_inputs))
            return logits, self.tape.features
        finally:
            self.tape.mask, self.tape.features = None, {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RecordedNetwork":
        """Move or cast the copy alone: by default PyTorch would write through the shared parameters into `model`."""
        converted: dict[int, tuple[Tensor, Tensor]] = {}

        def convert_once(tensor: Tensor) -> Tensor:
            if id(tensor) not in converted:
                converted[id(tensor)] = tensor, fn(tensor)  # held, lest a new tensor inherit the id of a freed one
            return converted[id(tensor)][1]

        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            return super()._apply(convert_once, recurse)
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)


def switch_to_evaluation(network: RecordedNetwork, dropout: bool) -> RecordedNetwork:
    """Evaluation mode, with what drops out alone switched on if asked.

    PyTorch's own attention, encoder and recurrent layers drop out by a flag of their own, and in evaluation skip it.
    """
    network.eval()
    for module in network.modules():
        if isinstance(module, DROPOUTS):
            module.training = dropout
    return network


def device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))


def choose_device(device: torch.device | str | None, model: nn.Module) -> torch.device:
    """The device asked for, if it is there; without one asked for, that of the model."""
    if device is None:
        return device_of(model)
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        raise ValueError(
            f'device="{device}" cannot be used here ({str(fault).splitlines()[0]}). Leave it out to work where the model is.'
        ) from fault


@contextmanager
def random_state_kept(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """Whatever is drawn inside, Python's, numpy's and torch's generators are afterwards as before.

    With a `seed` they begin from it inside; torch's on the host and on `device` only, for `torch.manual_seed` would seed
    those of every other device too, which nobody restores.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            if seed is not None:
                set_random_state(device, seed)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def set_random_state(device: torch.device, seed: int) -> None:
    """Let Python's, numpy's and torch's generators, on the host and on `device`, begin from `seed`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
