"""Record what the blocks of a network put out, without touching the network.

A recorded network is a copy of the module tree: new modules, the same parameters and buffers. Recorders are forward hooks of
the copy, so the user's model keeps its hooks, flags and classes whatever happens, and the copy compiles, exports, deep-copies
and moves between devices like any module.
"""

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lates.network.batches import call_arguments, copy_inputs, read_logits
from lates.network.blocks import choose_blocks, named_modules
from lates.network.copying import copy_network
from lates.runtime import plain_tensor

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

Reducer = Callable[[Any, Tensor | None], Tensor]
"""(what a block put out, the attention mask [n, tokens] or None) -> features [n, width]"""


class Tape(threading.local):
    """What the recorders of one forward pass saw; one tape per thread, so that threads may share a model."""

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self.features: dict[str, list[Tensor]] = {}

    def __reduce__(self) -> tuple[type["Tape"], tuple[()]]:
        """Copied or pickled, an empty one."""
        return Tape, ()


class Recorder:
    """A forward hook that reduces a block's output at once, before anything can change it in place."""

    def __init__(self, name: str, reduce: Reducer, tape: Tape) -> None:
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

    def __init__(self, model: nn.Module, reducers: Mapping[str, Reducer]) -> None:
        super().__init__()
        self.network = copy_network(model)
        self.tape = Tape()
        names = list(inspect.signature(self.network.forward).parameters)
        self.mask_position = names.index(MASK) if MASK in names else None
        self.blocks = tuple(choose_blocks(self.network, list(reducers)))
        modules = named_modules(self.network)
        for name in self.blocks:
            modules[name].register_forward_hook(Recorder(name, reducers[name], self.tape), with_kwargs=True)

    def forward(self, *inputs: Any, **named_inputs: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
        position = self.mask_position
        self.tape.mask = named_inputs.get(MASK) if position is None or position >= len(inputs) else inputs[position]
        self.tape.features = {}
        try:
            logits = read_logits(self.network(*inputs, **named_inputs))
            return logits, self.tape.features
        finally:
            self.tape.mask, self.tape.features = None, {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RecordedNetwork":
        """Move or cast the copy alone. PyTorch writes the result into the parameters it finds; so these are first replaced by
        parameters of the copy's own that share their storage."""
        aliases: dict[int, nn.Parameter] = {}
        for module in self.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    if id(parameter) not in aliases:
                        aliases[id(parameter)] = nn.Parameter(parameter.detach(), parameter.requires_grad)
                    module._parameters[name] = aliases[id(parameter)]
        return super()._apply(fn, recurse)


def switch_to_evaluation(network: RecordedNetwork, dropout: bool) -> RecordedNetwork:
    """Evaluation mode, with dropout alone switched on if asked.

    PyTorch's own attention, encoder and recurrent layers apply dropout by themselves, in training mode only.
    """
    network.eval()
    for module in network.modules():
        if isinstance(module, DROPOUTS):
            module.training = dropout
    return network


def device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))


def prepare_recorded(
    model: nn.Module, reducers: Mapping[str, Reducer], dropout: bool, device: torch.device
) -> RecordedNetwork:
    """A recorded copy in evaluation mode on `device`, with buffers of its own: some modules write into them even then."""
    network = switch_to_evaluation(RecordedNetwork(model, reducers), dropout)
    for module in network.modules():
        module._buffers.update({name: None if b is None else b.clone() for name, b in module._buffers.items()})
    return network.to(device)


def call_recorded(network: RecordedNetwork, inputs: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Call it with inputs as a loader gives them, in tensors of their own: a network may write into what it is given."""
    with torch.inference_mode():
        positional, named = call_arguments(copy_inputs(inputs))
        logits, features = network(*positional, **named)
    return plain_tensor(logits, "The network's logits"), features
