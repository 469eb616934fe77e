"""What `calibrate` asks of its arguments, before it reads anything."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lates.network import Ensemble, Features, Reading, Views, check_loader, refuse_overlap
from lates.runtime import Run
from lates.stack import check_loss

VIEWS_ADVICE = (
    'Pass views=: "robust" for images, "noise" or "swap" for table rows, lates.views.mask_tokens(tokenizer) for text, or a '
    "function inputs -> inputs."
)


def check_arguments(
    train: Iterable[Any] | None, holdout: Iterable[Any], loss: str, ensemble: Ensemble, reading: Reading, run: Run
) -> None:
    """Refuse what does not go together; `reading` is that of the training split."""
    check_loss(loss, several=len(ensemble.networks) * ensemble.samples > 1)
    check_loader(holdout, "holdout")
    if train is not None:
        check_loader(train, "train")
        refuse_overlap(train, holdout)
    elif not isinstance(reading.blocks, Sequence) or len(reading.blocks) > 0:
        raise ValueError(
            "The probes learn from the training split: pass train=, the loader the model was trained on. For temperature "
            "scaling, which needs none, pass blocks=[]."
        )
    if run.processes.world_size > 1 and "sgd" in (reading.settings.optimiser, reading.settings.solver):
        raise ValueError(
            f"The paper's SGD is for one process, and here are {run.processes.world_size}. Use the settings' other solvers, or "
            "let one process work alone: distributed=False."
        )


def plan_holdout(train: Reading, holdout_views: Views, expect_shift: bool) -> Reading:
    """How the hold-out is read: as the training split, but for its views. Where shift is expected these are the same."""
    if not isinstance(expect_shift, bool):
        raise ValueError(f"expect_shift={expect_shift!r}: expected True or False.")
    if not expect_shift:
        return replace(train, views=holdout_views, views_option="holdout_views")
    if holdout_views is not None:
        raise ValueError(
            "Pass expect_shift=True or holdout_views=, not both: they use copies of the hold-out differently."
        )
    if train.views is None:
        raise ValueError(
            "expect_shift=True draws changed copies of the hold-out by views=, which is None. " + VIEWS_ADVICE
        )
    return train


def without_copies(holdouts: Sequence[Features]) -> list[Features]:
    """The rows as they are, of hold-outs that have changed copies too."""
    if holdouts[0].passes == 1:
        raise ValueError(
            'expect_shift=True draws changed copies of the hold-out by views=, and "auto" has none for such inputs. '
            + VIEWS_ADVICE
        )
    return [rows.first_pass() for rows in holdouts]
