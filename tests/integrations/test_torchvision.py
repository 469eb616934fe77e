"""Models of torchvision and timm, where these import: without a build that fits the installed torch they do not."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lates

CLASSES, ROWS = 5, 24
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

TORCHVISION = {
    # name: (class of its blocks, how many, side of the images, further arguments)
    "resnet18": ("BasicBlock", 8, 32, {}),
    "resnet50": ("Bottleneck", 16, 32, {}),
    "vgg16_bn": ("ReLU", 15, 32, {}),
    "vit_b_16": ("EncoderBlock", 12, 32, {"image_size": 32}),
    "swin_t": ("SwinTransformerBlock", 12, 64, {}),
    "convnext_tiny": ("CNBlock", 18, 64, {}),
    "densenet121": ("_DenseBlock", 4, 32, {}),
    "efficientnet_b0": ("MBConv", 16, 32, {}),
    "mobilenet_v2": ("InvertedResidual", 17, 32, {}),
    "googlenet": ("Inception", 9, 64, {"aux_logits": False, "init_weights": False}),
}
TIMM = {
    "resnet18": ("BasicBlock", 8, 32),
    "vit_tiny_patch16_224": ("Block", 12, 224),
    "swin_tiny_patch4_window7_224": ("SwinTransformerBlock", 12, 224),
    "convnext_atto": ("ConvNeXtBlock", 12, 64),
    "mixer_s32_224": ("MixerBlock", 8, 224),
}
CASES = [("torchvision.models", name) for name in TORCHVISION] + [("timm", name) for name in TIMM]

LAYOUTS = {
    "vit_b_16": ("class", -1),
    "swin_t": ("grid", -1),
    "vit_tiny_patch16_224": ("class", -1),
    "swin_tiny_patch4_window7_224": ("grid", -1),
    "mixer_s32_224": ("mean", -1),
}
"""How the first block is pooled, and where its channels are."""


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, AttributeError, OSError) as fault:
        pytest.skip(f"{name} does not import with torch {torch.__version__}: {fault}")


def build(source: str, name: str) -> tuple[nn.Module, str, int, int]:
    """The network with random weights and settled batch norm, the class and number of its blocks, its images' side."""
    module = library(source)
    if source == "timm":
        block, count, side = TIMM[name]
        model = module.create_model(name, pretrained=False, num_classes=CLASSES)
    else:
        block, count, side, further = TORCHVISION[name]
        model = getattr(module, name)(weights=None, num_classes=CLASSES, **further)
    model = model.to(DEVICE).train()
    with torch.no_grad():
        model(torch.randn(ROWS, 3, side, side, device=DEVICE))
    return model, block, count, side


def batches(side: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(ROWS) % CLASSES
    images = torch.randn(ROWS, 3, side, side, generator=generator) + labels[:, None, None, None]
    return [(images[:16], labels[:16]), (images[16:], labels[16:])]


@pytest.mark.parametrize(("source", "name"), CASES)
def test_blocks_are_listed_recorded_and_calibrated(source: str, name: str) -> None:
    model, block, count, side = build(source, name)
    expected = [path for path, part in model.named_modules() if type(part).__name__ == block]
    names = lates.list_blocks(model)
    assert names == expected
    assert len(names) == count

    train, holdout = batches(side, 1), batches(side, 2)
    features = lates.extract(model, train)
    assert list(features.blocks) == names
    assert all(part.training for part in model.modules())
    first = features.poolings[names[0]]
    assert (first.method, first.channels_axis) == LAYOUTS.get(name, ("grid", 1))
    with torch.no_grad():
        model.eval()
        logits = torch.cat([model(images.to(DEVICE)) for images, _ in train])
    assert torch.allclose(features.logits, logits, rtol=1e-2, atol=1e-2 * float(logits.abs().max()))

    chosen = [names[0], names[len(names) // 2]]
    calibrated = lates.calibrate(model, train=train, holdout=holdout, blocks=chosen, passes=1, budget=None, progress=False)
    assert list(calibrated.weights) == [*chosen, "head"]
    probabilities = calibrated.predict_proba(holdout[0][0].to(DEVICE))
    assert probabilities.shape == (16, CLASSES)
    assert torch.allclose(probabilities.sum(1), torch.ones(16, device=DEVICE), atol=1e-5)


def test_auxiliary_heads_are_left_out() -> None:
    models = library("torchvision.models")
    model = models.googlenet(weights=None, num_classes=CLASSES, aux_logits=True, init_weights=False).to(DEVICE)
    features = lates.extract(model, batches(64, 1))
    assert list(features.blocks) == [name for name in lates.list_blocks(model) if name.startswith("inception")]
