"""What the paper fixes and we do otherwise, in one place: `DEFAULT` is ours; `PAPER` and `PAPER_LITERAL` read the paper."""

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal, get_args, get_origin, get_type_hints

ImageView = Literal["flip", "shift", "jitter", "robust"]


@dataclass(frozen=True)
class Settings:
    """The choices behind `calibrate` that a user rarely touches. Derive your own with `dataclasses.replace`.

    pooling     "grid": average over a `grid` x `grid` raster of each channel (tokens: class token or mean);
                "spatial": average over the finest square raster that fits what `budget` gives, then flatten;
                "flat": channels last, flattened, one-dimensional average pooling to what `budget` gives.
    grid        side of the raster; 1 is a global average.
    tokens      "class": the class token where the network has one, otherwise the mean; "mean": always the mean.
    last_block  True: the block whose output the head reads gets a probe too. False: the head is its member, as in the paper.
    standardise subtract the training mean of each feature and divide by its deviation (folded into the probe later).
    optimiser   of the probes. "lbfgs": the log-loss to `tolerance`, weight decay chosen on the hold-out; "sgd": the paper's
                50 epochs, to the loss that the weights are fitted to.
    tolerance   the probes stop when the gradient's norm has fallen to this share of its first value.
    allocation  of the budget. "gain": probes start dense, and the directions that the hold-out misses least per parameter go;
                "equal": the same share for every block.
    cap         a quantile, such as 0.99: a probe's logits are scaled down where their root mean square over classes is above
                that quantile of the hold-out's. None: never.
    solver      of the stack. "exact": its optimum; "sgd": the paper's 50 epochs of projected SGD; MC dropout and ensembles are
                always solved.
    prior       strength of the pull towards the network as it is, counted in wrongly classified rows. It fades as 1 / n, and is
                not felt at 5,000 rows. 0 switches four safeguards of `lates.stack` off: the prior itself, the one error that is
                assumed where every row is right (prior), the outlier rows that are left out, and the probes that are dropped
                where they make the hold-out's accuracy clearly worse (safeguards).
    regularise  c of the stack's penalty (c / sqrt(n)) / 2 · ‖beta‖², Proposition 1.
    views       what `views="auto"` means for images: None, "flip", "shift", "jitter" or "robust".
    passes      on how many freshly drawn views of each image the probes train. The draws are kept: where the paper flips
                anew in each epoch, its epochs here choose among this many flips of each image.
    """

    pooling: Literal["grid", "spatial", "flat"] = "grid"
    grid: int = 2
    tokens: Literal["class", "mean"] = "class"
    last_block: bool = True
    standardise: bool = True
    optimiser: Literal["lbfgs", "sgd"] = "lbfgs"
    tolerance: float = 3e-3
    allocation: Literal["gain", "equal"] = "gain"
    cap: float | None = None
    solver: Literal["exact", "sgd"] = "exact"
    prior: float = 2.0
    regularise: float = 0.0
    views: Literal[None, ImageView] = "robust"
    passes: int = 4

    def __post_init__(self) -> None:
        """A misspelt option would otherwise quietly mean another one."""
        for name, hint in get_type_hints(Settings).items():
            options = (True, False) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
            value = getattr(self, name)
            if options and value not in options:
                raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, options))}.")
        for name in ("grid", "passes"):
            if not isinstance(value := getattr(self, name), int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}: expected a whole number, at least 1.")
        for name in ("tolerance", "prior", "regularise"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
                raise ValueError(f"{name}={value!r}: expected a finite number that is not negative.")
        if self.cap is not None and not (isinstance(self.cap, float) and 0 < self.cap <= 1):
            raise ValueError(f"cap={self.cap!r}: expected a share above 0 and at most 1, such as 0.99, or None.")

    def expecting_shift(self) -> "Settings":
        """With `SHIFT_EXPECTED` in place of what has its default value."""
        unchanged = (name for name in SHIFT_EXPECTED if getattr(self, name) == getattr(DEFAULT, name))
        return replace(self, **{name: SHIFT_EXPECTED[name] for name in unchanged})


DEFAULT = Settings()

SHIFT_EXPECTED = {"last_block": False, "cap": 0.99}
"""What `expect_shift=True` changes where the user has not, besides rescaling the weights: `results/choosing-defaults.md`."""

PAPER = Settings(
    pooling="spatial",
    last_block=False,
    optimiser="sgd",
    allocation="equal",
    solver="sgd",
    prior=0.0,
    views="flip",
    passes=2,
)
"""The most plausible reading of the paper that works, as far as it says what it does: `results/paper-recipe.md`."""

PAPER_LITERAL = replace(PAPER, pooling="flat", standardise=False)
"""The paper's words taken literally: activations flattened with channels last, on their own scale. On CIFAR-100 its probes gain
nothing."""
