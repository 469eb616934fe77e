"""Name the blocks of a network.

The rule. A *layer* is a module with a weight of two or more dimensions (a convolution, a linear map, a recurrent layer;
embeddings are none). `nn.Sequential` and `nn.ModuleList` are *lists*. A module that is no list and holds two or more layers
is a *composite*.

1. Composites that stand in a list, or beside another of their class, are blocks: residual blocks, encoder layers, inception
   modules. A *stage*, whose composites all sit in lists of its own (Swin, ConvNeXt), is searched for blocks instead.
2. A network without such composites (VGG, an MLP, plain module trees) has one block per layer: the module that wraps this
   single layer, if one does; otherwise the layer with the normalisation that follows it and, where order is certain
   (inside `nn.Sequential`), the activation, under the name of the last of them. The last layer is the head, not a block.
   A norm or activation that serves several layers belongs to none.

The head reads the last composite's output, unless more than a pooler stands between them. The paper takes the head for that
block's member and gives it no probe; by default it gets one. With single layers (rule 2) every block gets one.
"""

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsIndex

from torch import nn

from lates.network.recorder import copy_network
from lates.runtime import abbreviate

HEAD = "head"
"""The name of the network's own member; no block may have it."""

LAYERS_OF_A_HEAD = 2
"""Layers that may follow the last composite, a pooler and the head, for the head to count as that block's member."""

LISTS = (nn.Sequential, nn.ModuleList)


def list_blocks(model: nn.Module) -> list[str]:
    """The names of a network's blocks, in the order of its modules. The rule stands at the head of `lates/network/blocks.py`.

    The automatic choice, `blocks=None`, takes all of them, or all but the last: see `Settings.last_block`.

    >>> lates.list_blocks(resnet18)
    ['layer1.0', 'layer1.1', 'layer2.0', …, 'layer4.1']
    """
    return _natural_blocks(copy_network(model))


def automatic_blocks(network: nn.Module, last_block: bool) -> list[str]:
    """The blocks that get a probe when the user names none: all, or, without the `last_block`, those whose output the head does
    not read. If that leaves none, as in a network of one composite, that one gets a probe."""
    chosen, modules = _natural_blocks(network), dict(network.named_modules())
    if not last_block and len(chosen) > 1 and any(_composites(network, "")):
        later = list(modules)[list(modules).index(chosen[-1]) + 1 :]
        if sum(_is_layer(modules[name]) for name in later if not name.startswith(f"{chosen[-1]}.")) <= LAYERS_OF_A_HEAD:
            chosen = chosen[:-1]
    return [name for name in chosen if name != HEAD]


def choose_blocks(model: nn.Module, blocks: Sequence[str] | int | None, last_block: bool = True) -> list[str]:
    """None: the automatic choice; an int: its last n; a list of names: exactly those, in the network's order."""
    network = copy_network(model)  # without wrappers, here and in all that follows
    if blocks is None:
        return automatic_blocks(network, last_block)
    if isinstance(blocks, bool | str) or not isinstance(blocks, SupportsIndex | Sequence):
        raise TypeError(f"blocks={blocks!r}: expected None (all), an int (the last n) or a list of names.")
    if isinstance(blocks, SupportsIndex):
        count, known = operator.index(blocks), automatic_blocks(network, last_block)
        if not 0 <= count <= len(known):
            raise ValueError(
                f"blocks={blocks}: the automatic choice has {len(known)} blocks to take the last of: "
                f"{abbreviate(known) or 'none found'}."
            )
        return known[len(known) - count :]
    modules = dict(network.named_modules())
    for name in blocks:
        if name not in modules or not name:
            raise ValueError(
                f'Unknown block "{name}". Blocks of this model: {abbreviate(_natural_blocks(network)) or "none found"}.'
            )
    if HEAD in blocks:
        raise ValueError(f'A block called "{HEAD}" would be mistaken for the network\'s own member. Leave it out.')
    if len(set(blocks)) < len(blocks):
        raise ValueError(f"blocks={list(blocks)} names a block twice.")
    return [name for name in modules if name in blocks]


def layer_behind(modules: Mapping[str, nn.Module], name: str) -> nn.Module:
    """The module that tells how a block's output is laid out: the block, or the layer before it where it holds none."""
    if _layers_in(modules[name]):
        return modules[name]
    earlier = list(modules.values())[: list(modules).index(name)]
    return next(filter(_is_layer, reversed(earlier)), modules[name])


def _natural_blocks(network: nn.Module) -> list[str]:
    """By rule 1, else by rule 2; a block that occurs several times counts once, under the first of its names."""
    known = dict(network.named_modules())
    return [name for name in list(_composites(network, "")) or _single_layers(network) if name in known]


def _composites(module: nn.Module, prefix: str) -> Iterator[str]:
    """Rule 1, depth first. `prefix` is empty or ends in a dot."""
    kinds = Counter(map(type, module.children()))
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        repeated = isinstance(module, LISTS) or kinds[type(child)] > 1
        if _is_composite(child) and repeated and not _is_stage(child):
            yield path
        else:
            yield from _composites(child, f"{path}.")


def _single_layers(network: nn.Module) -> list[str]:
    """Rule 2: each layer but the last, under the name of the last module of its run of layer, norm, activation."""
    names: list[str] = []
    run_open = False
    units = list(_units(network, ""))
    occurrences = Counter(module for _, module, _ in units)
    for name, module, in_sequence in units:
        norm = "norm" in type(module).__name__.lower()
        activation = in_sequence and type(module).__module__ == nn.ReLU.__module__
        if _layers_in(module):
            names.append(name)
            run_open = True
        elif run_open and occurrences[module] == 1 and (norm or activation):
            names[-1] = name
        else:
            run_open = False
    return names[:-1]


def _units(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module, bool]]:
    """Modules of at most one layer, lists looked into, with whether they stand in an `nn.Sequential`."""
    for name, child in module._modules.items():
        if child is None:
            continue
        if isinstance(child, LISTS) or (_layers_in(child) > 1 and not _is_layer(child)):
            yield from _units(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child, isinstance(module, nn.Sequential)


def _is_layer(module: nn.Module) -> bool:
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return False
    weights = [p for name, p in module._parameters.items() if p is not None and "weight" in name]
    parametrised = "weight" in getattr(module, "parametrizations", {})
    return parametrised or any(weight.dim() >= 2 for weight in weights)


def _layers_in(module: nn.Module) -> int:
    return sum(map(_is_layer, module.modules()))


def _is_composite(module: nn.Module) -> bool:
    return not isinstance(module, LISTS) and _layers_in(module) >= 2


def _is_stage(module: nn.Module) -> bool:
    children = list(module.children())
    return any(map(_is_list_of_composites, children)) and not any(map(_is_composite, children))


def _is_list_of_composites(module: nn.Module) -> bool:
    if not isinstance(module, LISTS):
        return False
    holders = [child for child in module if _layers_in(child)]
    return bool(holders) and all(_is_composite(child) or _is_list_of_composites(child) for child in holders)
