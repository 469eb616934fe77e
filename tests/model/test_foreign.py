"""Models that others wrote: random-weight vision and text transformers, ConvNeXt and ResNet from `transformers`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ConvNextConfig,
    ConvNextForImageClassification,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

import lates

CLASSES, SIDE, VOCABULARY, PAD = 4, 16, 30, 0
LABELLED: dict[str, Any] = {"num_labels": CLASSES}


def vit() -> PreTrainedModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    return ViTForImageClassification(ViTConfig(**sizes, image_size=SIDE, patch_size=4, **LABELLED))


def swin() -> PreTrainedModel:
    sizes: dict[str, Any] = {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4}
    return SwinForImageClassification(SwinConfig(**sizes, image_size=SIDE, patch_size=2, **LABELLED))


def convnext() -> PreTrainedModel:
    sizes: dict[str, Any] = {"hidden_sizes": [8, 12], "depths": [2, 1], "num_stages": 2}
    return ConvNextForImageClassification(ConvNextConfig(**sizes, patch_size=2, **LABELLED))


def resnet() -> PreTrainedModel:
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [2, 1]}
    return ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic", **LABELLED))


def bert() -> PreTrainedModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    words = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": PAD}
    return BertForSequenceClassification(BertConfig(**sizes, **words, **LABELLED))


def draw_images(n: int, seed: int) -> Iterator[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    pixels = torch.randn(n, 3, SIDE, SIDE, generator=generator) + labels[:, None, None, None] / 2
    for rows in torch.arange(n).split(20):
        yield {"pixel_values": pixels[rows], "labels": labels[rows]}


def draw_texts(n: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """Token ids of 3 to 10 tokens, each batch padded to its longest; a label shows in the tokens used."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(0, n, 20):
        labels = torch.randint(CLASSES, (20,), generator=generator)
        lengths = torch.randint(3, 11, (20,), generator=generator)
        tokens = torch.randint(1, VOCABULARY - CLASSES, (20, int(lengths.max())), generator=generator) + labels[:, None]
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        yield {"input_ids": tokens.where(mask, PAD), "attention_mask": mask.long(), "labels": labels}


def without_labels(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values for name, values in batch.items() if name != "labels"}


def padded_further(batch: dict[str, Tensor], extra: int) -> dict[str, Tensor]:
    return {name: nn.functional.pad(values, (0, extra)) for name, values in without_labels(batch).items()}


@pytest.mark.parametrize(
    ("make", "layer", "method", "width"),
    [
        (vit, "ViTLayer", "class", 16),
        (swin, "SwinLayer", "mean", 8),
        (convnext, "ConvNextLayer", "grid", 8 * 4),
        (resnet, "ResNetBasicLayer", "grid", 8 * 4),
        (bert, "BertLayer", "mean", 16),
    ],
)
def test_blocks_are_the_layers_and_are_pooled_by_their_kind(
    make: Callable[[], PreTrainedModel], layer: str, method: str, width: int
) -> None:
    model = make()
    layers = [name for name, part in model.named_modules() if type(part).__name__ == layer]
    assert (len(layers), lates.list_blocks(model)) == (3, layers)
    batches = list(draw_texts(20, 0) if make is bert else draw_images(20, 0))
    features = lates.extract(model, batches)
    first = lates.list_blocks(model)[0]
    assert features.poolings[first].method == method
    assert features.blocks[first].shape == (20, width)
    model.eval()
    with torch.no_grad():
        logits = model(**without_labels(batches[0])).logits
    assert torch.allclose(features.logits, logits, atol=1e-5)


@pytest.mark.parametrize("make", [vit, swin, convnext, resnet, bert])
def test_they_can_be_calibrated(make: Callable[[], PreTrainedModel]) -> None:
    model = make().train()
    read = draw_texts if make is bert else draw_images
    train, holdout = list(read(60, 1)), list(read(40, 2))
    calibrated = lates.calibrate(model, train=train, holdout=holdout, budget=None, progress=False)
    assert all(part.training for part in model.modules())
    assert list(calibrated.weights) == [*lates.list_blocks(model), "head"]
    batch = without_labels(holdout[0])
    with torch.no_grad():
        logits = calibrated(**batch)
    probabilities = calibrated.predict_proba(batch)
    assert logits.shape == (20, CLASSES)
    assert torch.allclose(probabilities, logits.softmax(1))
    assert calibrated.fit.nll <= calibrated.fit.nll_temperature + 1e-9 <= calibrated.fit.nll_network + 2e-9


def test_padding_a_text_further_changes_no_prediction() -> None:
    model = bert()
    train, holdout = list(draw_texts(400, 1)), list(draw_texts(200, 2))
    calibrated = lates.calibrate(model, train=train, holdout=holdout, budget=None, progress=False)
    assert any(weight > 0 for name, weight in calibrated.weights.items() if name != "head"), "a probe must vote"
    for extra in (1, 7, 40):
        for batch in holdout:
            plain = calibrated.predict_proba(without_labels(batch))
            assert torch.allclose(calibrated.predict_proba(padded_further(batch, extra)), plain, atol=1e-5)


def test_a_mask_given_by_position_counts_as_one_given_by_name() -> None:
    model = bert()
    batches = list(draw_texts(40, 1))
    by_name = lates.extract(model, batches)
    by_place = lates.extract(model, [(b["input_ids"], b["attention_mask"], b["labels"]) for b in batches])
    for name, values in by_name.blocks.items():
        assert torch.equal(values, by_place.blocks[name])


def test_images_in_a_mapping_get_views() -> None:
    batches = list(draw_images(20, 0))
    model = resnet()
    plain, viewed = (lates.extract(model, batches, views=views) for views in (None, "auto"))
    assert not torch.equal(plain.logits, viewed.logits)
    assert torch.equal(plain.labels, viewed.labels)
