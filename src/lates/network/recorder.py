"""Record what the blocks of a network put out, without touching the network.

A recorded network is a copy of the module tree: new modules, the same parameters and buffers. Recorders are forward hooks of
the copy, so the user's model keeps its hooks, flags and classes whatever happens, and the copy compiles, exports, deep-copies
and moves between devices like any module.

`copy.deepcopy` follows registered modules, lists, dicts, bound methods, partials and plain objects. It keeps functions as they
are, so a closure or a global variable may lead from the copy back to the original; `refuse_originals` notices that.
"""

import copy
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from lates.network.batches import call_arguments, copy_inputs, read_logits
from lates.network.pooling import tensors_in
from lates.runtime import Processes, Run, plain_tensor

MASK = "attention_mask"
"""The network's input that marks its tokens, 1, and its padding, 0."""
PADDING = "src_key_padding_mask"
"""The same, reversed, as PyTorch's own encoder layers take it: True or -inf marks padding."""

ATTENTION = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
DROPOUTS = (nn.modules.dropout._DropoutNd, *ATTENTION, nn.RNNBase)
"""PyTorch's own attention, encoder and recurrent layers apply dropout by themselves, in training mode only."""

Reducer = Callable[[Any, Tensor | None], Any]
"""(what a block put out, the attention mask [n, tokens] or None) -> what is recorded of it, such as features [n, width]"""


class Tape(threading.local):
    """What the recorders of one forward pass saw; one tape per thread, so that threads may share a model."""

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self.features: dict[str, list[Any]] = {}

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
        self.blocks = tuple(reducers)
        for name, reduce in reducers.items():
            recorder = Recorder(name, reduce, self.tape)
            self.network.get_submodule(name).register_forward_hook(recorder, with_kwargs=True)

    def forward(self, *inputs: Any, **named_inputs: Any) -> tuple[Tensor, dict[str, list[Any]]]:
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
                    alias = nn.Parameter(parameter.detach(), parameter.requires_grad)
                    module._parameters[name] = aliases.setdefault(id(parameter), alias)
        return super()._apply(fn, recurse)


def switch_to_evaluation(network: RecordedNetwork, dropout: bool) -> RecordedNetwork:
    """Evaluation mode, with dropout alone switched on if asked."""
    network.eval()
    for module in network.modules():
        if isinstance(module, DROPOUTS):
            module.training = dropout
    return network


def device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))


def prepare_recorded(model: nn.Module, reducers: Mapping[str, Reducer], dropout: bool, run: Run) -> RecordedNetwork:
    """A recorded copy in evaluation mode, with buffers of its own, because some modules write into them even then."""
    network = switch_to_evaluation(RecordedNetwork(model, reducers), dropout)
    for module in network.modules():
        module._buffers.update({name: None if b is None else b.clone() for name, b in module._buffers.items()})
    synchronise_buffers(network.to(run.device), run.processes)
    return network


def synchronise_buffers(network: nn.Module, processes: Processes) -> None:
    """Let the network have rank 0's buffers: data-parallel training leaves every process with its own batch statistics.
    Parameters, however, must be the same."""
    if processes.world_size == 1:
        return
    contents = [parameter.detach().contiguous().flatten().view(torch.uint8) for parameter in network.parameters()]
    # sums of bytes are exact, hence the same on every device
    checksums = processes.gather([int(content.sum(dtype=torch.int64)) for content in contents])
    if any(checksum != checksums[0] for checksum in checksums):
        raise ValueError(
            "The processes calibrate different networks: their parameters differ. Load the same checkpoint in all of them."
        )
    buffers = processes.gather([buffer.cpu() for buffer in network.buffers()])[0]
    for buffer, values in zip(network.buffers(), buffers, strict=True):
        buffer.copy_(values)


def call_recorded(network: RecordedNetwork, inputs: Any) -> tuple[Tensor, dict[str, list[Any]]]:
    """Call it with inputs as a loader gives them, in tensors of their own: a network may write into what it is given."""
    with torch.inference_mode():
        positional, named = call_arguments(copy_inputs(inputs))
        logits, features = network(*positional, **named)
    return plain_tensor(logits, "The network's logits"), features


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


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel and `torch.compile`, however nested."""
    parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    inner = model.module if parallel else getattr(model, "_orig_mod", None)
    return unwrap(inner) if isinstance(inner, nn.Module) else model


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
