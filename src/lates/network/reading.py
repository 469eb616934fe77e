"""How a loader is read: one record, checked when it is made."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from lates.network.augmentations import ChannelScale, measure_channels
from lates.network.batches import read_batches
from lates.network.tokens import Tokenizer, TokenView, find_replacement, find_tokens
from lates.network.views import NAMES, View, ViewName, Views, find_inputs, make_view, require_inputs
from lates.runtime import check_integer
from lates.settings import DEFAULT, Settings

MEASURED_INPUTS = 1024
"""The scale of channels and columns is measured on this many."""


@dataclass(frozen=True)
class Reading:
    """How a loader is read.

    role         the loader's name in errors and progress: "train", "holdout"
    blocks       None: all; an int: the last n; a list of names
    views        what changes the inputs in each pass
    passes       None: as many as the settings say, one without views; with `copies_for` one plain and one changed
    copies_for   the option of `calibrate` that adds changed copies to a hold-out: the first pass reads the inputs as they are,
                 and a loader that shuffles does so alike in all passes; None: views take the inputs' place
    train_views  what will change inputs of the same kind in the training split: inputs that it cannot change are refused now
    tokenizer    of text, for views="auto"
    budget       matters where a pooling's width depends on it
    keep_logits  probes need no logits of the training split, which with many classes would be larger than all features
    settings     poolings, views and passes where the above leave them open
    """

    role: str = "loader"
    blocks: Sequence[str] | int | None = None
    views: Views = None
    passes: int | None = 1
    copies_for: Literal["holdout_views", "expect_shift"] | None = None
    train_views: Views = None
    tokenizer: Tokenizer | None = None
    budget: float | None = None
    keep_logits: bool = True
    settings: Settings = DEFAULT

    def __post_init__(self) -> None:
        if not (self.views is None or callable(self.views) or self.views in (*NAMES, "auto")):
            raise ValueError(
                f'Unknown {self._option}="{self.views}". Known: None, {", ".join(NAMES)}, auto, or a function inputs -> inputs.'
            )
        if self.passes is not None:
            check_integer(self.passes, "passes", least=1)

    @property
    def _option(self) -> str:
        """The option by which the caller passed the views."""
        return "holdout_views" if self.copies_for == "holdout_views" else "views"

    def choose_view(self, loader: Iterable[Any], device: torch.device) -> View | None:
        """What makes views of a batch: None, the user's, or a built-in one on the scale of the loader's channels."""
        view = self._find_view(loader, device)
        if view is None and self.copies_for == "expect_shift":
            why = "which is None" if self.views is None else 'and "auto" has none for such inputs'
            raise ValueError(
                f'expect_shift=True draws changed copies of the hold-out by views=, {why}. Pass views=: "robust" for images, '
                '"noise" or "swap" for table rows, lates.views.mask_tokens(tokenizer) for text, or a function inputs -> inputs.'
            )
        return view

    def _find_view(self, loader: Iterable[Any], device: torch.device) -> View | None:
        views = self.views
        if views is None or isinstance(views, TokenView):
            return views
        if callable(views):
            return lambda inputs, _: views(inputs)
        if views == "auto" and self.tokenizer is None and self.settings.views is None:
            return None
        batches = (inputs for inputs, _ in read_batches(loader, device, self.role))
        first = next(batches)
        if views != "auto":
            name = views
        elif self.tokenizer is not None and find_tokens(first) is not None:
            return TokenView(tuple(self.tokenizer.all_special_ids), find_replacement(self.tokenizer))
        elif (name := self.settings.views) is None or find_inputs(name, first) is None:
            return None
        return make_view(name, self._measure(name, chain([first], batches)))

    def _measure(self, name: ViewName, batches: Iterable[Any]) -> ChannelScale:
        """The scale of the first inputs."""
        measured: list[Tensor] = []
        for inputs in batches:
            values = require_inputs(name, inputs, self._option, self.role)
            if measured and values.shape[1:] != measured[0].shape[1:]:
                break
            measured.append(values)
            if sum(map(len, measured)) >= MEASURED_INPUTS:
                break
        return measure_channels(torch.cat(measured))

    def count_passes(self, view: View | None) -> int:
        if view is None and (self.passes is None or self.views == "auto"):
            return 1
        return self.passes or (2 if self.copies_for else self.settings.passes)

    def check_train_views(self, inputs: Any) -> None:
        """Refuse inputs of this loader that the views of the training split cannot change."""
        views = self.train_views
        if isinstance(views, TokenView):
            views.check(inputs)
        elif views not in (None, "auto") and not callable(views):
            require_inputs(views, inputs, role=self.role)
