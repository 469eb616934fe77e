"""How a loader is read: one object instead of arguments handed from function to function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lates.network.tokens import Tokenizer
from lates.settings import DEFAULT, Settings

ImageView = Literal["flip", "shift", "jitter", "robust"]
TableView = Literal["noise", "swap"]
ViewName = ImageView | TableView
View = Callable[[Any], Any]
Views = Literal["auto"] | ViewName | View | None


@dataclass(frozen=True)
class Reading:
    """role         the loader's name in errors and progress: "train", "holdout"
    blocks       None: all; an int: the last n; a list of names
    views        what changes the inputs in each pass
    views_option   what the caller names `views` in errors
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
