"""Random changes of token ids [n, tokens]: some tokens are replaced or hidden, the special ones never.

What is special and what may replace a token, only the tokenizer knows. So it is passed; `views="auto"` then masks tokens:

>>> lates.calibrate(model, train=train, holdout=holdout, tokenizer=tokenizer)
>>> lates.calibrate(model, train=train, holdout=holdout, views=lates.views.drop_tokens(tokenizer, share=0.3))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from lates.network.recorder import MASK

IDS = "input_ids"
"""The key under which `transformers` passes token ids."""
SHARE = 0.15
NEEDED = f'need token ids: integers [n, tokens], alone or under "{IDS}" in a mapping'


class Tokenizer(Protocol):
    """What is read of a tokenizer; those of `transformers` have it."""

    @property
    def all_special_ids(self) -> Sequence[int]: ...
    @property
    def mask_token_id(self) -> int | None: ...
    @property
    def unk_token_id(self) -> int | None: ...


@dataclass(frozen=True)
class TokenView:
    """Changes each token, unless it is special, with probability `share`.

    special      the ids that never change: class token, separators, padding, …
    replacement  the id that takes the place of a changed token; None: the attention mask hides it instead
    """

    special: tuple[int, ...]
    replacement: int | None = None
    share: float = SHARE

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share={self.share!r}: expected a fraction of the tokens, above 0 and below 1.")

    def __call__(self, inputs: Any, generator: torch.Generator | None = None) -> Any:
        ids = self.check(inputs)
        special = torch.tensor(self.special, dtype=ids.dtype).to(ids.device, non_blocking=True)
        drawn = torch.rand(ids.shape, generator=generator, device=ids.device) < self.share
        changed = drawn & ~torch.isin(ids, special)
        if self.replacement is not None:
            replaced = torch.where(changed, self.replacement, ids)
            return {**inputs, IDS: replaced} if isinstance(inputs, Mapping) else replaced
        mask = inputs.get(MASK, torch.ones_like(ids))
        kept = torch.where(changed, 0, mask)  # a row that would have no token left stays as it is
        return {**inputs, MASK: torch.where(kept.any(1, keepdim=True), kept, mask)}

    def check(self, inputs: Any) -> Tensor:
        """The token ids in a batch's inputs, if this view can change them."""
        ids = find_tokens(inputs)
        if ids is None:
            raise ValueError(f"Views of tokens {NEEDED}. Pass views=None or a function inputs -> inputs.")
        if self.replacement is None and not isinstance(inputs, Mapping):
            raise ValueError(f'Tokens are hidden by the attention mask: expected a mapping with "{IDS}", not a tensor.')
        return ids


def mask_tokens(tokenizer: Tokenizer, share: float = SHARE) -> TokenView:
    """Views in which a random share of the tokens is replaced by the tokenizer's mask token, or else its unknown token."""
    replacement = find_replacement(tokenizer)
    if replacement is None:
        raise ValueError(
            f"This {type(tokenizer).__name__} has neither a mask token nor an unknown token of its own. Hide tokens instead: "
            "views=lates.views.drop_tokens(tokenizer)."
        )
    return TokenView(tuple(tokenizer.all_special_ids), replacement, share)


def drop_tokens(tokenizer: Tokenizer, share: float = SHARE) -> TokenView:
    """Views in which the attention mask hides a random share of the tokens; a row keeps at least one that it sees."""
    return TokenView(tuple(tokenizer.all_special_ids), None, share)


def find_tokens(inputs: Any) -> Tensor | None:
    """The token ids [n, tokens] in a batch's inputs, or None."""
    ids = inputs.get(IDS) if isinstance(inputs, Mapping) else inputs
    is_ids = isinstance(ids, Tensor) and ids.dim() == 2 and ids.dtype in (torch.int32, torch.int64)
    return ids if is_ids else None


def find_replacement(tokenizer: Tokenizer) -> int | None:
    """The mask token, or else the unknown token, unless it has another role: some tokenizers have one special token for all,
    which as a replacement would end the text."""
    if tokenizer.mask_token_id is not None:
        return tokenizer.mask_token_id
    roles = ("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id")
    unknown = tokenizer.unk_token_id
    return None if any(getattr(tokenizer, role, None) == unknown for role in roles) else unknown
