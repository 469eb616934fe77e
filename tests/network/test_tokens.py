"""Views of token ids: a share of the tokens is replaced or hidden, the special ones never."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import lates
from lates.network.tokens import TokenView
from tests.network.test_views import choose, seeded

PAD, UNKNOWN, CLASS, SEPARATOR, MASKED = range(5)


@dataclass(frozen=True)
class Tokenizer:
    """What is read of a tokenizer of `transformers`."""

    mask_token_id: int | None = MASKED
    unk_token_id: int | None = UNKNOWN
    eos_token_id: int | None = SEPARATOR
    all_special_ids: tuple[int, ...] = (PAD, UNKNOWN, CLASS, SEPARATOR, MASKED)


def draw_text(n: int = 300, length: int = 12, seed: int = 0) -> dict[str, Tensor]:
    """Class token, words, separator, padding."""
    lengths = torch.randint(3, length + 1, (n, 1), generator=seeded(seed))
    ids = torch.randint(5, 50, (n, length), generator=seeded(seed + 1))
    places = torch.arange(length)
    ids = torch.where(places < lengths - 1, ids, torch.where(places == lengths - 1, SEPARATOR, PAD))
    ids[:, 0] = CLASS
    return {"input_ids": ids, "attention_mask": (places < lengths).long(), "token_type_ids": torch.zeros_like(ids)}


VIEWS = {
    "mask": (lates.views.mask_tokens(Tokenizer(), 0.3), "input_ids", MASKED),
    "unknown": (lates.views.mask_tokens(Tokenizer(mask_token_id=None), 0.3), "input_ids", UNKNOWN),
    "drop": (lates.views.drop_tokens(Tokenizer(), 0.3), "attention_mask", 0),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_views_change_a_share_of_the_words_by_the_generator_and_nothing_else(name: str, dtype: torch.dtype) -> None:
    view, key, value = VIEWS[name]
    text = {name: values.to(dtype) for name, values in draw_text().items()}
    before, untouched = {name: values.clone() for name, values in text.items()}, torch.get_rng_state()
    generator = seeded(3)
    changed, other = view(text, generator), view(text, generator)
    assert torch.equal(torch.get_rng_state(), untouched)
    assert torch.equal(view(text, seeded(3))[key], changed[key])
    assert not torch.equal(other[key], changed[key])
    assert all(torch.equal(text[name], before[name]) for name in text)
    assert all(torch.equal(changed[other], text[other]) for other in text if other != key)
    assert changed[key].dtype == dtype
    moved, words = changed[key] != text[key], text["input_ids"] > MASKED
    assert not bool((moved & ~words).any())
    assert bool((changed[key][moved] == value).all())
    assert float(moved[words].float().mean()) == pytest.approx(0.3, abs=0.04)


def test_a_row_never_loses_its_last_token() -> None:
    ids = torch.full((500, 2), 7)
    changed = TokenView(special=(), share=0.9)({"input_ids": ids}, seeded())
    assert bool(changed["attention_mask"].any(1).all())
    assert not bool(changed["attention_mask"].all())


def test_a_bare_tensor_of_ids_is_masked_but_cannot_be_dropped() -> None:
    text = draw_text()
    masked = VIEWS["mask"][0](text["input_ids"], seeded())
    assert torch.equal(masked, VIEWS["mask"][0](text, seeded())["input_ids"])
    with pytest.raises(ValueError, match=r'expected a mapping with "input_ids", not a tensor'):
        VIEWS["drop"][0](text["input_ids"], seeded())


@pytest.mark.parametrize("unknown", [None, SEPARATOR])
def test_a_tokenizer_without_a_token_to_put_in_place_is_told_what_else_works(unknown: int | None) -> None:
    tokenizer = Tokenizer(mask_token_id=None, unk_token_id=unknown)
    with pytest.raises(ValueError, match=r"This Tokenizer has neither a mask token.*lates\.views\.drop_tokens"):
        lates.views.mask_tokens(tokenizer)


@pytest.mark.parametrize("share", [0, 1, 15])
def test_a_share_is_a_fraction(share: float) -> None:
    with pytest.raises(ValueError, match=rf"share={share}: expected a fraction"):
        lates.views.mask_tokens(Tokenizer(), share)


@pytest.mark.parametrize("inputs", [torch.zeros(2, 5), {"pixel_values": torch.zeros(2, 3, 4, 4)}, "text"])
def test_other_inputs_hold_no_tokens(inputs: Any) -> None:
    with pytest.raises(ValueError, match=r"Views of tokens need token ids.*Pass views=None or a function"):
        VIEWS["mask"][0](inputs, seeded())


@pytest.mark.parametrize("replacement", [MASKED, None])
def test_auto_masks_or_drops_where_the_tokenizer_is_passed_and_else_nothing(replacement: int | None) -> None:
    tokenizer = Tokenizer(mask_token_id=replacement, unk_token_id=None)
    loader = [{**draw_text(20), "labels": torch.zeros(20).long()}]
    view = choose("auto", loader, tokenizer=tokenizer)
    assert view == TokenView(tokenizer.all_special_ids, replacement)
    assert choose("auto", loader) is None
    rows = [(torch.zeros(20, 3), torch.zeros(20).long())]
    assert choose("auto", rows, tokenizer=tokenizer) is None


@pytest.mark.parametrize("name", ["mask", "drop"])
def test_calibrating_with_views_of_tokens_repeats_from_the_seed(name: str) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
        model = BertForSequenceClassification(BertConfig(vocab_size=50, intermediate_size=16, **sizes)).eval()
    batches = [{**draw_text(60, seed=seed), "labels": torch.arange(60) % 3} for seed in range(4)]
    loaders: dict[str, Any] = {"train": batches[:2], "holdout": batches[2:], "budget": None, "progress": False}
    view = VIEWS[name][0]

    def features_of(seed: int) -> Tensor:
        return torch.cat(list(lates.extract(model, batches[:2], views=view, passes=2, seed=seed).blocks.values()), 1)

    assert torch.equal(features_of(0), features_of(0))
    assert not torch.equal(features_of(0), features_of(1))
    assert lates.calibrate(model, **loaders, views=view, holdout_views=view).fit.certified
    if name == "mask":
        masked = lates.calibrate(model, **loaders, views=lates.views.mask_tokens(Tokenizer()))
        assert lates.calibrate(model, **loaders, tokenizer=Tokenizer()).weights == masked.weights
