"""The networks have the published sizes, the paper's numbers of members, and behave as their formulas say."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.evaluation.evaluate import count_parameters
from experiments.training.networks import (
    NETWORKS,
    BasicBlock,
    Bottleneck,
    PaddedShortcut,
    ResNet,
    WideBlock,
    build_network,
)


@pytest.mark.parametrize(
    ("name", "classes", "large_images", "parameters"),
    [
        ("vgg16", 10, False, 14_724_042),
        ("vgg16", 100, False, 14_770_212),
        ("vgg19", 10, False, 20_035_018),
        ("resnet18", 10, False, 11_173_962),
        ("resnet18", 100, False, 11_220_132),
        ("resnet18", 1000, True, 11_689_512),
        ("resnet50", 10, False, 23_520_842),
        ("resnet50", 1000, True, 25_557_032),
        ("wide_resnet_28_10", 10, False, 36_479_194),
        ("wide_resnet_28_10", 100, False, 36_536_884),
        ("mobilenet", 10, False, 3_504_872 - 1_281_000 + 12_810),
        ("resnet20", 10, False, 269_722),
        ("resnet56", 10, False, 853_018),
        ("densenet_100", 10, False, 769_162),
    ],
)
def test_parameters_are_as_published(name: str, classes: int, large_images: bool, parameters: int) -> None:
    with torch.device("meta"):
        network = build_network(name, classes, large_images=large_images)
    assert count_parameters(network) == parameters


@pytest.mark.parametrize(
    ("name", "members"), [("vgg16", 14), ("vgg19", 17), ("resnet18", 8), ("resnet50", 16), ("wide_resnet_28_10", 12)]
)
def test_members_are_as_many_as_in_the_paper(name: str, members: int) -> None:
    with torch.device("meta"):
        network = build_network(name, 10)
    if name.startswith("vgg"):
        found = 1 + sum(isinstance(module, nn.Conv2d) for module in network.modules())
    else:
        found = sum(isinstance(module, BasicBlock | Bottleneck | WideBlock) for module in network.modules())
    assert found == members


def test_padded_shortcut_keeps_every_second_pixel_between_channels_of_zeros() -> None:
    x = torch.arange(2 * 4 * 4.0).view(1, 2, 4, 4)
    found = PaddedShortcut(2, 4, 2)(x)
    assert torch.equal(found[:, 1:3], x[:, :, ::2, ::2])
    assert not found[:, [0, 3]].any()


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_have_one_column_per_class(name: str) -> None:
    with torch.device("meta"):
        logits = build_network(name, 7)(torch.empty(2, 3, 32, 32))
    assert logits.shape == (2, 7)


@pytest.mark.parametrize(("stem", "size", "sides"), [("small", 32, [32, 16, 8, 4]), ("large", 224, [56, 28, 14, 7])])
def test_stages_of_a_residual_network_halve_the_image(stem: Any, size: int, sides: list[int]) -> None:
    seen: list[int] = []
    with torch.device("meta"):
        network = ResNet(BasicBlock, (1, 1, 1, 1), (4, 4, 4, 8, 8), 10, stem)
        for number in (1, 2, 3, 4):
            stage = network.get_submodule(f"layer{number}")
            stage.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape[-1]))
        network(torch.empty(1, 3, size, size))
    assert seen == sides


def silence_branch(block: BasicBlock | Bottleneck | WideBlock) -> None:
    """Make f(x) zero: the last thing that f does."""
    last = {BasicBlock: "bn2", Bottleneck: "bn3", WideBlock: "conv2"}[type(block)]
    nn.init.zeros_(block.get_parameter(f"{last}.weight"))


@pytest.mark.parametrize(
    ("block", "channels"), [(BasicBlock(8, 8, 1), 8), (Bottleneck(8, 8, 1), 8), (WideBlock(8, 8, 1, dropout=0.5), 8)]
)
def test_a_block_adds_its_branch_to_its_input(block: BasicBlock | Bottleneck | WideBlock, channels: int) -> None:
    silence_branch(block)
    x = torch.rand(2, channels, 6, 6)
    assert torch.equal(block(x), x)


def test_dropout_acts_in_training_alone_and_elementwise() -> None:
    torch.manual_seed(0)
    block = WideBlock(4, 4, 1, dropout=0.25)
    dropped: list[Tensor] = []
    block.bn2.register_forward_pre_hook(lambda _module, inputs: dropped.append(inputs[0]))
    x = torch.rand(16, 4, 8, 8)
    block(x)
    zeros = dropped[0] == 0
    assert zeros.double().mean() == pytest.approx(0.25, abs=0.03)
    assert not zeros.flatten(2).all(2).any(), "whole channels are dropped"
    block.eval()
    assert torch.equal(block(x), block(x))
