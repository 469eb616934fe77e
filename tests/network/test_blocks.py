"""The natural blocks of networks of every common shape, and the three ways to choose among them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import lates
from lates.network.blocks import choose_blocks
from lates.network.recorder import copy_network


class Block(nn.Module):
    """A residual block on any width."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(self.one(x).relu())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.layer1 = nn.Sequential(Block(), Block())
        self.layer2 = nn.Sequential(Block(), Block())
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer2(self.layer1(self.stem(x))))


class Stage(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.downsample = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
        self.blocks = nn.ModuleList(Block() for _ in range(depth))


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixed_a, self.mixed_b, self.mixed_c = Block(), Block(), Block()
        self.fc = nn.Linear(4, 3)


class Attributes(nn.Module):
    """Layers as attributes, one activation for all: the order of calls cannot be read from the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)


class Unit(nn.Module):
    """One layer with norm and activation, wrapped."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU()


def vgg() -> nn.Module:
    features = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True)
    )
    return nn.Sequential(features, nn.Flatten(), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)))


def encoder(layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.ModuleDict({"embed": nn.Embedding(9, 8), "encoder": nn.TransformerEncoder(layer, layers)})


def shared_activation() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), nn.LayerNorm(4), relu, nn.Linear(4, 3))


def block_in_two_places() -> nn.Module:
    block = Block()
    return nn.ModuleDict({"a": nn.Sequential(Block(), block), "b": nn.Sequential(block, Block())})


def layer_in_two_places() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), layer, nn.Sequential(layer, nn.Flatten()), nn.Linear(4, 3))


class Tail(nn.Module):
    """Two composites, and more layers than a pooler and a head."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.first, self.second = (nn.TransformerEncoderLayer(8, 2, 16) for _ in range(2))
        self.tail = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (block_in_two_places(), ["a.0", "a.1", "b.1"]),
        (layer_in_two_places(), ["1", "2"]),
        (Residual(), ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]),
        (vgg(), ["0.2", "0.5", "2.1"]),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)), ["1", "3"]),
        (nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.GELU(), nn.Flatten(), nn.Linear(8, 3)), ["2"]),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3)), ["0"]),
        (nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.ReLU(), weight_norm(nn.Linear(4, 3))), ["1"]),
        (Attributes(), ["bn1", "bn2"]),
        (nn.Sequential(Unit(), Unit(), nn.Flatten(), nn.Linear(3, 3)), ["0", "1"]),
        (encoder(3), ["encoder.layers.0", "encoder.layers.1", "encoder.layers.2"]),
        (nn.Sequential(Stage(1), Stage(2), nn.Linear(4, 3)), ["0.blocks.0", "1.blocks.0", "1.blocks.1"]),
        (Inception(), ["mixed_a", "mixed_b", "mixed_c"]),
        (nn.Sequential(nn.LSTM(4, 8), nn.Linear(8, 3)), ["0"]),
        (shared_activation(), ["0", "3"]),
        (nn.Linear(4, 3), []),
        (nn.Flatten(), []),
    ],
)
def test_natural_blocks(model: nn.Module, names: list[str]) -> None:
    assert lates.list_blocks(model) == names


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Residual(), ["layer1.0", "layer1.1", "layer2.0"]),
        (vgg(), lates.list_blocks(vgg())),
        (encoder(1), ["encoder.layers.0"]),
        (Tail(2), ["first"]),
        (Tail(5), ["first", "second"]),
        (nn.ModuleDict({"head": Block(), "body": Block(), "tail": Block()}), ["body"]),
    ],
)
def test_without_the_last_block_what_the_head_reads_is_left_out(model: nn.Module, names: list[str]) -> None:
    assert choose_blocks(model, None, last_block=False) == names


def test_the_automatic_choice_takes_all_blocks_but_one_called_head() -> None:
    assert choose_blocks(Residual(), None) == lates.list_blocks(Residual())
    assert choose_blocks(nn.ModuleDict({"head": Block(), "body": Block(), "tail": Block()}), None) == ["body", "tail"]


def compiled(model: nn.Module) -> nn.Module:
    wrapper = torch.compile(model)
    assert isinstance(wrapper, nn.Module)
    return wrapper


def wrapped_inside(model: nn.Module) -> nn.Module:
    assert isinstance(model, Residual)
    model.add_module("layer1", compiled(model.layer1))
    model.layer2[0] = nn.DataParallel(model.layer2[0])
    return model


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        compiled,
        lambda model: compiled(wrapped_inside(model)),
    ],
)
def test_names_carry_no_trace_of_wrappers(wrap: Callable[[nn.Module], nn.Module]) -> None:
    plain = Residual()
    expected = lates.list_blocks(plain)
    parameters = dict(plain.named_parameters())
    wrapped = wrap(plain)
    assert lates.list_blocks(wrapped) == expected
    copied = dict(copy_network(wrapped).named_parameters())
    assert list(copied) == list(parameters)
    assert all(copied[name] is parameter for name, parameter in parameters.items())


@pytest.mark.parametrize(
    ("blocks", "chosen"),
    [
        (0, []),
        (2, ["layer2.0", "layer2.1"]),
        ([], []),
        (("layer2.1", "stem", "layer2.0.two", "layer1"), ["stem", "layer1", "layer2.0.two", "layer2.1"]),
    ],
)
def test_an_int_takes_the_last_and_a_list_exactly_those_in_the_network_s_order(blocks: Any, chosen: list[str]) -> None:
    assert choose_blocks(Residual(), blocks) == chosen


@pytest.mark.parametrize(
    ("blocks", "error", "message"),
    [
        (5, ValueError, r"blocks=5: the automatic choice has 4 blocks .*layer1\.0, layer1\.1, layer2\.0, layer2\.1"),
        (-1, ValueError, "blocks=-1"),
        (True, TypeError, r"blocks=True: expected None \(all\), an int \(the last n\) or a list"),
        ("layer1.0", TypeError, "blocks='layer1.0': expected"),
        (1.0, TypeError, "blocks=1.0: expected"),
        (["layer1.0", "layer1.0"], ValueError, "names a block twice"),
        (
            ["layer1.0", "layer9"],
            ValueError,
            r'Unknown block "layer9"\. Blocks of this model: layer1\.0, layer1\.1, layer2\.0, layer2\.1\.',
        ),
        ([""], ValueError, 'Unknown block ""'),
    ],
)
def test_other_choices_are_refused(blocks: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        choose_blocks(Residual(), blocks)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "Blocks of this model: none found"),
        (nn.Sequential(*(Block() for _ in range(20))), r"model: 0, 1, 2, 3, 4, 5, 6, 7 and 12 more\.$"),
    ],
)
def test_an_unknown_block_is_answered_with_few_of_those_that_exist(model: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_blocks(model, ["x"])


def test_no_block_may_bear_the_name_of_the_head_s_member() -> None:
    with pytest.raises(ValueError, match='"head" would be mistaken'):
        choose_blocks(nn.ModuleDict({"head": Block(), "body": Block()}), ["head"])
