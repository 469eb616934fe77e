"""A fit that cannot harm: outlier rows are left out, a stack worse than the network falls back, and warnings say what to do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.binomial import binomial_tail
from lates.runtime import abbreviate, on_one_core, warn_caller
from lates.stack.members import Chunk, MemberRows
from lates.stack.record import Stack

OUTLIER = 30.0
"""How many times the median a row's logits may be. In over a thousand hold-outs of five data sets the largest was 15 times."""
MEDIAN_BITS = range(62, 42, -1)
"""Of a float64, the exponent and as much of the mantissa as makes a median right to 0.4 %."""
ENOUGH_ROWS = 1_000
SIGNIFICANCE, WORSE = 0.01, 0.01
"""Of binomial tests; and the share of the rows that a stack must lose besides: no fit on many rows is undone for a trifle."""
LARGEST_SPREAD = 1e12


@dataclass(frozen=True)
class PredictionCounts:
    """What the network as it is and the stack make of the hold-out's rows, in all processes.

    right       rows in which the network is right
    lost, won   of them, those in which the stack is wrong; and rows in which only the stack is right
    labels      rows of each class [classes], and `predicted` by the network
    """

    rows: int
    right: int
    lost: int
    won: int
    labels: Tensor
    predicted: Tensor

    @classmethod
    def of(cls, members: MemberRows, weights: Tensor) -> "PredictionCounts":
        """With the stack's weights of all members."""
        classes, network = members.classes, members.initial_weights
        temperature = len(weights) == 1 and float(weights) > 0  # changes no prediction

        def counts(chunks: list[Chunk]) -> Tensor:
            labels = chunks[0].labels
            predicted = members.mean_logits(chunks, network).argmax(dim=1)
            was_right = predicted == labels
            now_right = was_right if temperature else members.mean_logits(chunks, weights).argmax(dim=1) == labels
            changes = was_right.sum(), (was_right & ~now_right).sum(), (now_right & ~was_right).sum()
            of_classes = [torch.bincount(values, minlength=classes) for values in (labels, predicted)]
            return torch.cat([torch.stack(changes), *of_classes])

        right, lost, won, *of_classes = map(int, members.sum_jointly(counts).tolist())
        labels, predicted = torch.tensor(of_classes, dtype=torch.float64).split(classes)
        return cls(int(labels.sum()), right, lost, won, labels, predicted)

    @property
    def at_chance(self) -> bool:
        """Whether the network is no better than random guesses with its own class frequencies."""
        several = int((self.labels > 0).sum()) > 1
        chance = self.by_chance / self.rows
        return several and on_one_core(binomial_tail, self.right, self.rows, chance) > SIGNIFICANCE

    @property
    def by_chance(self) -> float:
        """How many rows such guesses would be right in, on average."""
        return float(self.labels @ self.predicted) / self.rows

    @property
    def clearly_worse(self) -> bool:
        """Whether the stack is right less often, by a hundredth of the rows, and not by chance."""
        significant = binomial_tail(self.lost, self.lost + self.won, 0.5) < SIGNIFICANCE
        return significant and self.lost - self.won > WORSE * self.rows


def without_outliers(members: MemberRows, warn: bool = True) -> MemberRows:
    """Without rows whose logits dwarf the median in a member of any sample: one such row can outweigh all others."""
    medians = _medians(members)
    here = on_one_core(lambda sizes: (sizes > OUTLIER * medians).any(dim=0).nonzero()[:, 0], members.sizes)
    left_out = int(members.reduce(torch.tensor([len(here)], dtype=torch.float64)))
    if not left_out:
        return members
    ordinary = torch.ones(len(members.labels), dtype=torch.bool).index_fill(0, here, False)
    if not warn:
        return members.select(ordinary)
    where = ""
    if len(here):  # otherwise they are another process's
        names = [name for names in members.names for _ in range(members.samples_per_network) for name in names]
        worst = (members.sizes[:, here] / medians).amax(dim=1)
        rows = abbreviate(sorted({int(row) % (len(ordinary) // members.passes) for row in here}))
        where = f' (rows {rows}; member "{names[int(worst.argmax())]}", {float(worst.amax()):.3g} times)'
    warn_caller(
        f"{left_out} of {members.rows} hold-out rows have logits more than {OUTLIER:.0f} times the median{where} and were "
        "left out of the fit. Look at these inputs: a feature divided by a tiny deviation is the usual cause."
    )
    return members.select(ordinary)


def _medians(members: MemberRows) -> Tensor:
    """The median over the rows of all processes of the logits' size in each member of each sample [members, 1]; inf where it is
    0. It is found bit by bit, with one all-reduce for each, for numbers of at least 0 are in the order of their bits."""
    numbers = members.sizes.view(torch.int64)
    medians = torch.zeros(len(numbers), 1, dtype=torch.int64)
    for bit in MEDIAN_BITS:
        larger = medians | 1 << bit
        smaller_rows = on_one_core(lambda limits: (numbers < limits).sum(dim=1, keepdim=True), larger)
        medians = torch.where(2 * members.reduce(smaller_rows.double()) < members.rows, larger, medians)
    return torch.where(medians > 0, medians.view(torch.float64), torch.inf)


def check_fit(stack: Stack, members: MemberRows) -> Stack:
    """The stack, or temperature scaling where the stack is clearly worse than the head; warns of all that speaks against it."""
    counts, heads = PredictionCounts.of(members, stack.weights), members.head_places
    probes_vote = bool(stack.weights.index_fill(0, heads, 0.0).any())
    if stack.prior > 0 and probes_vote and counts.clearly_worse:
        after = counts.right - counts.lost + counts.won
        warn_caller(
            f"The stack is right on {after:,} hold-out rows, the head on {counts.right:,}: the probes were dropped, and "
            "temperature scaling is used. Look for inputs far from all others, or pass blocks=[]."
        )
        stack = _without_probes(stack, members)
    silent_probes = len(stack.weights) > len(heads) and not probes_vote
    expected_errors = _expected_errors(members) if counts.right == counts.rows else 0.0
    _warn_of_doubts(stack, counts, counts.rows // members.passes, silent_probes, expected_errors)
    return stack


def check_spread(names: Sequence[str], deviations: Tensor) -> None:
    """Prior and log-loss are added: where the one is 1e12 times the other, no digit of the certificate would be right."""
    largest = int(deviations.argmax())
    if float(deviations[largest]) > LARGEST_SPREAD:
        raise ValueError(
            f'The logits of member "{names[largest]}" vary by {float(deviations[largest]):.1e} (root mean square), '
            f"beyond what float64 can fit; expected at most {LARGEST_SPREAD:.0e}. Look for overflow in the network or for "
            "outliers, or scale the logits."
        )


def _without_probes(stack: Stack, members: MemberRows) -> Stack:
    """Temperature scaling, or the network as it is where that would be uniform."""
    scaled = torch.tensor(stack.temperature_weights, dtype=torch.float64)
    useful = bool(scaled.any())
    weights = members.heads_alone(scaled if useful else torch.ones_like(scaled))
    nll = stack.nll_temperature if useful else stack.nll_network
    unknown = {"certified": False, "unbounded": False, "objective": math.nan, "residual": math.nan}
    return replace(stack, weights=weights, nll=nll, **unknown)


def _expected_errors(members: MemberRows) -> float:
    """Of the network as it is, by its confidences."""

    def errors(chunks: list[Chunk]) -> Tensor:
        return (1 - members.mean_logits(chunks, members.initial_weights).softmax(dim=1).amax(dim=1)).sum()[None]

    return float(members.sum_jointly(errors))


def _warn_of_doubts(stack: Stack, counts: PredictionCounts, inputs: int, silent_probes: bool, expected_errors: float) -> None:
    prior, rows, classes = stack.prior > 0, counts.rows, len(counts.labels)
    if inputs < ENOUGH_ROWS:
        meaning = "; the prior keeps them close to the network" if prior else " without a prior, so that chance decides"
        warn_caller(f"The weights are fitted to {inputs} hold-out rows{meaning}. Use {ENOUGH_ROWS:,} or more.")
    if counts.right == rows and classes > 1:
        meaning = "one error was assumed" if prior else "no finite weights are the best"
        hint = ""
        if expected_errors > 5:
            hint = f" By its confidence it should have erred in about {expected_errors:.0f}: either it is "
            hint += "underconfident or these rows were used in training."
        warn_caller(
            f"All {rows:,} hold-out rows are classified correctly, so they cannot show how wrong the network can be; "
            f"{meaning}.{hint} Use rows that were not used for training, and more of them."
        )
    missing = (counts.labels == 0).nonzero()[:, 0].tolist()
    if missing:
        warn_caller(
            f"{len(missing)} of {classes} classes have no hold-out row ({abbreviate(missing)}): how sure the model may be of "
            "them is not measured. Add rows of these classes."
        )
    if not bool(stack.weights.any()):
        warn_caller(
            f"All weights are 0, so that every prediction is uniform: on these {rows} rows no logits agree with the "
            "labels. Check whether label c means column c of the logits, whether rows and labels are in the same order, and "
            "whether the labels are more than one class."
        )
        return
    if silent_probes:
        warn_caller(
            "No probe got a vote: this is temperature scaling. More training rows make better probes, more hold-out rows show "
            "what they gain."
        )
    if counts.at_chance:
        warn_caller(
            f"The network is right on {counts.right:,} of {rows:,} hold-out rows, no more than by chance "
            f"({counts.by_chance:,.0f}). Is its checkpoint loaded? Is label c column c of the logits? Are inputs "
            "preprocessed as in training?"
        )
