"""The one record of a fit: the weights, and what is known about them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from lates.runtime import Array, check_logits
from lates.stack.members import Members
from lates.stack.newton import STATIONARY


@dataclass(frozen=True, eq=False)
class Stack:
    """The fitted weights and what is known about them. An ensemble has the members of all its networks in one stack.

    weights     beta [members], float64; the head is the last of each network
    names       one for each member; in an ensemble with the network's number before it: "0/head", "1/head"
    deviations  rms of each member's class-centred logits on the hold-out [members]
    loss        what was minimised, with `prior`, its strength, and `regularise`, the c of the penalty
                (c / sqrt(n)) / 2 · ||beta||²
    rows        of the hold-out, and its `classes`
    objective   the penalised loss on the hold-out, of the weights before any scaling for expected shift
    nll         the hold-out's log-loss; `nll_network` that of the network as it is, `nll_temperature` that of temperature
                scaling, whose weights, 1 / temperature, one for each network, are `temperature_weights`
    scale       what the weights were multiplied by after the fit, for expected shift; `nll` is that of the scaled weights
    residual    how far, at most, the optimality conditions are from being met, in the scaled variables: max_k |min(b_k, g_k)|;
                before any scaling too
    certified   before any scaling, the weights are the global minimum: log-loss, residual at most 1e-10, and a minimum exists
    unbounded   without prior and penalty: the hold-out does not bound the weights, or too faintly for float64 to decide. They
                stopped at the largest weight allowed, or, for the log-loss, where the gradient vanished
    steps       over all rows of all members
    budgets     parameters added, as fractions of the network's: none, those of this fit, and what larger budgets would add;
                `budget_nll` are their hold-out log-losses, cross-validated. Empty where no budget was binding
    """

    weights: Tensor
    names: tuple[str, ...]
    deviations: Tensor
    loss: str
    rows: int
    classes: int
    nll: float
    nll_network: float
    nll_temperature: float
    temperature_weights: tuple[float, ...]
    certified: bool
    unbounded: bool
    prior: float = 0.0  # files of earlier versions lack this and what follows
    regularise: float = math.nan
    objective: float = math.nan
    residual: float = math.nan
    steps: int = 0
    scale: float = 1.0
    budgets: tuple[float, ...] = ()
    budget_nll: tuple[float, ...] = ()

    @property
    def contributions(self) -> dict[str, float]:
        """Each member's share of the weights' sum; all 0 where all weights are 0."""
        total = float(self.weights.sum())
        return self._named(self.weights / total if total > 0 else torch.zeros_like(self.weights))

    @property
    def spread(self) -> dict[str, float]:
        """Weight times deviation: what each member adds to the logits, whatever the scale of its logits."""
        return self._named(self.weights * self.deviations)

    @property
    def temperature(self) -> float:
        """1 / weight of the head, inf where that is 0. Only a stack of one member has a temperature."""
        if len(self.weights) > 1:
            raise AttributeError(
                f"A stack of {len(self.weights)} members has no single temperature; use weights or contributions, "
                "or fit the head alone."
            )
        weight = float(self.weights[0])
        return 1 / weight if weight > 0 else float("inf")

    @property
    def stationary(self) -> bool:
        """The optimality conditions hold to seven digits: for a loss that is not convex, all that can be certified."""
        return not self.unbounded and self.residual <= STATIONARY

    @property
    def outcome(self) -> str:
        """How the fit ended, in words."""
        if self.unbounded:
            end = "not bounded by the hold-out"
        elif self.certified:
            end = "the optimum, certified"
        else:
            end = "a stationary point, certified" if self.stationary else "not certified"
        return end if self.scale == 1 else f"{end}; then times {self.scale:.3f} for expected shift"

    @property
    def budget_note(self) -> str | None:
        """What this budget gives and a larger one would, in a line; None where no budget was binding."""
        if len(self.budgets) < 3:
            return None
        given = f"{self.budgets[1]:.1%} more parameters give {self.budget_nll[1]:.4f}"
        best, larger = min(zip(self.budget_nll[2:], self.budgets[2:], strict=True))
        more = f"{larger:.1%} would give {best:.4f}" if best < self.budget_nll[1] else "more would not help"
        return f"{given}, {more}"

    @property
    def numbers(self) -> dict[str, Any]:
        """All but the members' tensors and names, as plain data for JSON; what is not known is left out."""
        names = [field.name for field in fields(self) if field.name not in ("weights", "names", "deviations")]
        return {name: value for name in names if (value := getattr(self, name)) == value}

    def over(self, names: Sequence[str]) -> "Stack":
        """The same stack of these members; those that were not fitted have weight 0. Members with a weight must be there."""
        lost = [name for name, weight in self._named(self.weights).items() if weight > 0 and name not in names]
        if lost:
            raise ValueError(
                f"The stack gives weight to {', '.join(lost)}, which the model does not have; it has {', '.join(names)}. Fit "
                "the stack to member_logits(probes, holdout), whose names are those of the blocks."
            )
        known = self._named(self.weights), self._named(self.deviations)
        weights, deviations = (torch.tensor([v.get(name, 0.0) for name in names], dtype=torch.float64) for v in known)
        return replace(self, names=tuple(names), weights=weights, deviations=deviations)

    def _named(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.names, values.tolist(), strict=True))


def member_names(networks: Sequence[Iterable[str]]) -> tuple[str, ...]:
    """The names of all networks' members, with the network's number before them where there are several."""
    prefixes = [f"{number}/" if len(networks) > 1 else "" for number in range(len(networks))]
    return tuple(prefix + name for prefix, names in zip(prefixes, networks, strict=True) for name in names)


def combine(members: Members, weights: Tensor) -> Tensor:
    """The stack's logits, sum_k weight_k member_k: [n, classes]. Members of weight 0 are not touched."""
    total = torch.zeros_like(members[-1])
    for member, weight in zip(members, weights.tolist(), strict=True):
        if weight != 0:  # where features did not fit a GPU, the head's logits are on the host and the probes' are not
            total += weight * member.to(total.device)
    return total


def apply_stack(stack: Stack, members: Mapping[str, Array]) -> Tensor:
    """The calibrated logits [n, classes], on any rows, of the members that the stack was fitted to."""
    if set(members) != set(stack.names):
        raise ValueError(f"The members are {', '.join(members)}; this stack was fitted to {', '.join(stack.names)}.")
    logits = [check_logits(members[name], f'logits of member "{name}"') for name in stack.names]
    expected = [len(logits[-1]), stack.classes]
    for name, member in zip(stack.names, logits, strict=True):
        if list(member.shape) != expected:
            raise ValueError(
                f'Member "{name}" has shape {list(member.shape)}; expected {expected}: as many rows as the head and as many '
                "classes as in fit."
            )
    wide = [member.to(torch.promote_types(member.dtype, torch.float32)) for member in logits]
    return check_logits(combine(wide, stack.weights), "calibrated logits")
