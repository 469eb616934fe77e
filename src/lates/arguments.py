"""What `calibrate` makes of its arguments before it reads anything: a plan, or an error."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lates.network import Ensemble, Reading, Views, check_loader, refuse_overlap
from lates.runtime import Run
from lates.settings import Settings
from lates.stack import MemberRows, Stack, check_loss, fit_expecting_shift, fit_weights


@dataclass(frozen=True)
class Plan:
    """How both splits are read, and to what probes and weights are fitted.

    loss          of the weights
    expect_shift  the hold-out has its rows, then changed copies of them, which only choose one factor for all weights
    """

    train: Reading
    holdout: Reading
    loss: str
    expect_shift: bool

    @classmethod
    def of(cls, train: Reading, holdout_views: Views, loss: str, expect_shift: bool) -> "Plan":
        """The hold-out is read as the training split, but for its views; where shift is expected these are the same."""
        if not isinstance(expect_shift, bool):
            raise ValueError(f"expect_shift={expect_shift!r}: expected True or False.")
        if expect_shift and holdout_views is not None:
            raise ValueError("Pass expect_shift=True or holdout_views=, not both: they use copies of the hold-out differently.")
        if expect_shift:
            train = replace(train, settings=train.settings.expecting_shift())
        holdout = replace(
            train,
            role="holdout",
            passes=None,
            views=train.views if expect_shift else holdout_views,
            copies_for="expect_shift" if expect_shift else "holdout_views",
            train_views=train.views,
        )
        return cls(replace(train, keep_logits=False), holdout, loss, expect_shift)

    def check(self, train: Iterable[Any] | None, holdout: Iterable[Any], ensemble: Ensemble, run: Run) -> None:
        """Refuse what does not go together."""
        check_loss(self.loss, several=len(ensemble.networks) * ensemble.samples > 1)
        check_loader(holdout, "holdout")
        if train is not None:
            check_loader(train, "train")
            refuse_overlap(train, holdout)
        elif self.train.blocks not in (0, [], ()):
            raise ValueError(
                "The probes learn from the training split: pass train=, the loader the model was trained on. For temperature "
                "scaling, which needs none, pass blocks=[]."
            )
        if run.processes.world_size > 1 and "sgd" in (self.settings.optimiser, self.settings.solver):
            raise ValueError(
                f"The paper's SGD is for one process, and here are {run.processes.world_size}. Use the settings' other "
                "solvers, or let one process work alone: distributed=False."
            )

    @property
    def settings(self) -> Settings:
        return self.train.settings

    @property
    def probe_loss(self) -> str:
        return self.loss if self.settings.optimiser == "sgd" else "nll"

    def fit_weights(self, members: MemberRows, seed: int) -> Stack:
        fit = fit_expecting_shift if self.expect_shift else fit_weights
        return fit(members, self.loss, self.settings, seed)
