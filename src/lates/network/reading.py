"""How a loader is read: one record, checked when it is made."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lates.network.augmentations import ChannelScale, measure_channels
from lates.network.batches import read_batches
from lates.network.tokens import Tokenizer, TokenView, find_replacement, find_tokens
from lates.network.views import NAMES, DrawView, ViewName, Views, find_inputs, make_view
from lates.runtime import check_integer
from lates.settings import DEFAULT, Settings

MEASURED_ROWS = 1024
"""The scale of channels and columns is measured on this many inputs."""
VIEWS_ADVICE = (
    'Pass views=: "robust" for images, "noise" or "swap" for table rows, lates.views.mask_tokens(tokenizer) for text, or a '
    "function inputs -> inputs."
)


@dataclass(frozen=True)
class Reading:
    """How a loader is read.

    role         the loader's name in errors and progress: "train", "holdout"
    blocks       None: all; an int: the last n; a list of names
    views        what changes the inputs in each pass
    views_option   what the caller names `views` in errors
    views_needed_by   the option that needs views, and so refuses inputs that have none; "": none does
    later_views  what will change inputs of the same kind in another reading: inputs that it cannot change are refused now
    passes       None: as many as the settings say, one without views; with `plain_first` one plain and one changed
    plain_first  the first pass reads the inputs as they are, and a loader that shuffles does so alike in all passes
    tokenizer    of text, for views="auto"
    budget       matters where a pooling's width depends on it
    keep_logits  probes need no logits of the training split, which with many classes would be larger than all features
    settings     poolings, views and passes where the above leave them open
    """

    role: str = "loader"
    blocks: Sequence[str] | int | None = None
    views: Views = None
    passes: int | None = 1
    plain_first: bool = False
    tokenizer: Tokenizer | None = None
    budget: float | None = None
    keep_logits: bool = True
    settings: Settings = DEFAULT
    views_option: str = "views"
    views_needed_by: str = ""
    later_views: Views = None

    def __post_init__(self) -> None:
        if not (self.views is None or callable(self.views) or self.views in (*NAMES, "auto")):
            raise ValueError(
                f'Unknown {self.views_option}="{self.views}". Known: None, {", ".join(NAMES)}, auto, or a function '
                "inputs -> inputs."
            )
        if self.views is None:
            self._refuse_missing_views("which is None")
        if self.passes is not None:
            check_integer(self.passes, "passes", least=1)

    def choose_view(self, loader: Iterable[Any], device: torch.device) -> DrawView | None:
        """The function that draws views: None, the user's, or a built-in one on the scale of the loader's channels."""
        views = self.views
        if views is None or isinstance(views, TokenView):
            return views
        if callable(views):
            return lambda inputs, _: views(inputs)
        if views == "auto" and self.tokenizer is not None:
            inputs, _ = next(iter(read_batches(loader, device, self.role)))
            if find_tokens(inputs) is not None:
                return TokenView(tuple(self.tokenizer.all_special_ids), find_replacement(self.tokenizer))
        name = self.settings.views if views == "auto" else views
        scale = None if name is None else self._measure(name, loader, device)
        if name is None or scale is None:
            self._refuse_missing_views('and "auto" has none for such inputs')
            return None
        return make_view(name, scale)

    def count_passes(self, view: DrawView | None) -> int:
        if view is None and (self.passes is None or self.views == "auto"):
            return 1
        return self.passes or (2 if self.plain_first else self.settings.passes)

    def check_later_views(self, inputs: Any) -> None:
        """Refuse inputs of this loader that the views of another reading cannot change."""
        views = self.later_views
        if isinstance(views, TokenView):
            views.check(inputs)
        elif views not in (None, "auto") and not callable(views):
            find_inputs(views, inputs, role=self.role)

    def _measure(self, name: ViewName, loader: Iterable[Any], device: torch.device) -> ChannelScale | None:
        """The scale of the first inputs; None where they are not of the kind that "auto" would change."""
        rows: list[Tensor] = []
        for inputs, _ in read_batches(loader, device, self.role):
            try:
                values = find_inputs(name, inputs, self.views_option, self.role)
            except ValueError:
                if self.views == "auto":
                    return None
                raise
            if rows and values.shape[1:] != rows[0].shape[1:]:
                break
            rows.append(values)
            if sum(map(len, rows)) >= MEASURED_ROWS:
                break
        return measure_channels(torch.cat(rows))

    def _refuse_missing_views(self, why: str) -> None:
        if self.views_needed_by:
            raise ValueError(
                f"{self.views_needed_by} draws changed copies of the hold-out by {self.views_option}=, {why}. {VIEWS_ADVICE}"
            )
