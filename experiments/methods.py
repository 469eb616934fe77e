"""The methods compared: each is one function (material of a cell) -> `Fitted`, and one line in the table `METHODS`.

All predict by a stack: with members R_k(x), the logits of probes and of the head, and weights beta,

    logits(x) = sum_k beta_k R_k(x).

The controls say where a gain comes from. Is it the solver (`temperature_sgd`, `temperature_tau_sgd`) or the loss
(`temperature_brier`)? Does the network's last layer hold it already, if fitted anew (`vector_scaling`, `head_refitted_*`)?
Is it that views were seen at all (`*_jittered_holdout`, `*_both_holdouts`)?
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import lates
from experiments.material import AVERAGE, PAPER, HoldOut, Material
from lates import Probe, fit_budget

HEAD = "head"
LOGITS = "logits"
HOLDOUT_STAGES: Mapping[HoldOut, tuple[str, ...]] = {
    "plain": ("extraction_holdout",),
    "jittered": ("extraction_jittered_holdout",),
    "both": ("extraction_holdout", "extraction_jittered_holdout"),
    "paper": ("extraction_paper",),
}
BUDGETS: Mapping[str, float | None] = {"0.5": 0.005, "1": 0.01, "2": 0.02, "5": 0.05, "all": None}
"""The share of the network's parameters that probes may add, in percent as methods are named."""
TAU_RATE, TAU_BATCH, TAU_EPOCHS, SMALLEST_TAU = 0.005, 128, 50, 1e-3
"""The paper's stack optimiser, and how near to 0 a temperature may come."""

Recorded = Mapping[str, Tensor]
"""name -> pooled features [n, width] of a block, of `AVERAGE`, or the network's `LOGITS` [n, classes]"""


@dataclass(frozen=True, eq=False)
class NewHead:
    """A linear map of what it `reads`, `AVERAGE` or `LOGITS`, that stands in the head's place at no cost."""

    reads: str
    probe: Probe


@dataclass(frozen=True, eq=False)
class Fitted:
    """A method ready to predict.

    weights   member -> beta, of all blocks considered; the head is the last
    probes    of the blocks whose weight is above 0
    pooling   whose features the probes read: the library's "grid" or the paper's "flat"
    stages    of the material that this method used, for its seconds
    """

    weights: Mapping[str, float]
    probes: Mapping[str, Probe] = dataclasses.field(default_factory=dict)
    head: NewHead | None = None
    pooling: Literal["grid", "flat"] = "grid"
    stages: tuple[str, ...] = ("extraction_holdout",)

    @property
    def contributions(self) -> dict[str, float]:
        total = sum(self.weights.values())
        return {name: weight / total if total > 0 else 0.0 for name, weight in self.weights.items()}

    @property
    def added_parameters(self) -> int:
        """Of the probes that vote, biases included."""
        return sum(probe.parameters for probe in self.probes.values())

    @property
    def added_flops(self) -> int:
        """Of the probes' matrix products for one image, two for each multiplication; pooling is left out."""
        return sum(2 * (probe.parameters - len(probe.bias)) for probe in self.probes.values())

    @property
    def ranks(self) -> dict[str, int]:
        """Of each probe that votes; as many as classes where it is dense."""
        return {name: len(probe.down) for name, probe in self.probes.items()}

    def predict(self, recorded: Recorded) -> Tensor:
        """Logits [n, classes], float32."""
        own = self.head
        head = recorded[LOGITS].float() if own is None else own.probe.logits(recorded[own.reads])
        total = self.weights[HEAD] * head
        for name, probe in self.probes.items():
            total = total + self.weights[name] * probe.logits(recorded[name])
        return total


Method = Callable[[Material], Fitted]


def network_alone(material: Material) -> Fitted:
    return Fitted({HEAD: 1.0}, stages=())


def temperature(
    material: Material, *, loss: str = "nll", solver: Literal["exact", "sgd"] = "exact", holdout: HoldOut = "plain"
) -> Fitted:
    """softmax(beta z): the stack with the head as its only member."""
    fitted = _stacked({}, material.holdouts[holdout], solver=solver, loss=loss, seed=material.seed)
    return dataclasses.replace(fitted, stages=HOLDOUT_STAGES[holdout])


def temperature_by_tau(material: Material) -> Fitted:
    """softmax(z / tau) by the paper's SGD in tau rather than in beta = 1 / tau, with the same rate, batch and epochs.

    With p = softmax(z / tau) a row's loss has d/dtau = -(1 / tau²) (sum_c p_c z_c - z_y).
    """
    logits, labels = material.holdout.logits.double().cpu(), material.holdout.labels.cpu()
    excess = (logits - logits.gather(1, labels[:, None])).numpy()  # torch would share out each small step among threads
    generator = torch.Generator().manual_seed(material.seed)
    tau = 1.0
    for _ in range(TAU_EPOCHS):
        for batch in torch.randperm(len(labels), generator=generator).split(TAU_BATCH):
            rows = excess[batch.numpy()]
            powers = np.exp((rows - rows.max(1, keepdims=True)) / tau)
            slope = -float(((powers * rows).sum(1) / powers.sum(1)).mean()) / tau**2
            tau = max(tau - TAU_RATE * slope, SMALLEST_TAU)
    return Fitted({HEAD: 1 / tau})


def vector_scaling(material: Material) -> Fitted:
    """softmax(a ⊙ z + b), a and b [classes] fitted to the log-loss, which is convex in them, by L-BFGS from (1, 0)."""
    logits, labels = material.holdout.logits.double(), material.holdout.labels
    scales = torch.ones(logits.shape[1], dtype=torch.float64, device=logits.device, requires_grad=True)
    shifts = torch.zeros_like(scales, requires_grad=True)
    optimiser = torch.optim.LBFGS([scales, shifts], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(scales * logits + shifts, labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    probe = Probe(torch.diag(scales.detach()).float(), None, shifts.detach().float())
    return Fitted({HEAD: 1.0}, head=NewHead(LOGITS, probe))


def head_refitted(material: Material, *, views: str, holdout: HoldOut = "plain") -> Fitted:
    """The head trained anew on the views that LATES' probes see, then temperature: the gain of views alone."""
    probe, rows = material.probes[views][AVERAGE].probe, material.holdouts[holdout]
    stack = lates.fit_stack({HEAD: probe.logits(rows.blocks[AVERAGE])}, rows.labels)
    return Fitted(_named_weights(stack), head=NewHead(AVERAGE, probe), stages=_stages(views, holdout))


def layer_stack(
    material: Material, *, views: str, budget: float | None, last_block: bool = False, holdout: HoldOut = "plain"
) -> Fitted:
    """LATES: probes trained on `views`, cut to the budget, then all weights at their optimum on the hold-out.

    Each probe's decay is always chosen on the plain one.
    """
    rows = material.holdouts[holdout]
    names = material.blocks
    if last_block and material.last_block not in names:
        names = (*names, material.last_block)
    trained = {name: material.probes[views][name] for name in names}
    fitted = _stacked(fit_budget(trained, rows, budget), rows, considered=names, seed=material.seed)
    return dataclasses.replace(fitted, stages=_stages(views, holdout))


def layer_stack_of_the_paper(material: Material) -> Fitted:
    """Algorithm 1 to the letter: flat pooling to 1 % of the parameters, flips, SGD for probes and stack."""
    probes = {name: trained.probe for name, trained in material.probes[PAPER].items()}
    fitted = _stacked(probes, material.holdouts[PAPER], solver="sgd", seed=material.seed)
    return dataclasses.replace(fitted, pooling="flat", stages=(*HOLDOUT_STAGES[PAPER], "probes_paper"))


METHODS: Mapping[str, Method] = {
    "network": network_alone,
    "temperature": temperature,
    "temperature_sgd": partial(temperature, solver="sgd"),
    "temperature_tau_sgd": temperature_by_tau,
    "temperature_brier": partial(temperature, loss="brier"),
    "temperature_jittered_holdout": partial(temperature, holdout="jittered"),
    "temperature_both_holdouts": partial(temperature, holdout="both"),
    "vector_scaling": vector_scaling,
    "head_refitted_shift": partial(head_refitted, views="shift"),
    "head_refitted_jitter": partial(head_refitted, views="jitter"),
    "head_refitted_both_holdouts": partial(head_refitted, views="jitter", holdout="both"),
    "lates_paper": layer_stack_of_the_paper,
    **{
        f"lates_{views}_{percent}": partial(layer_stack, views=views, budget=budget)
        for views in ("none", "shift", "jitter")
        for percent, budget in BUDGETS.items()
    },
    "lates_jittered_holdout": partial(layer_stack, views="jitter", budget=0.01, holdout="jittered"),
    "lates_both_holdouts": partial(layer_stack, views="jitter", budget=0.01, holdout="both"),
    "lates_last_block": partial(layer_stack, views="shift", budget=0.01, last_block=True),
}


def _stacked(
    probes: Mapping[str, Probe],
    holdout: lates.Features,
    *,
    considered: tuple[str, ...] | None = None,
    solver: Literal["exact", "sgd"] = "exact",
    loss: str = "nll",
    seed: int,
) -> Fitted:
    """The weights of these probes and the head on a hold-out; blocks `considered` that got no probe weigh 0."""
    members = {name: probe.logits(holdout.blocks[name]) for name, probe in probes.items()} | {HEAD: holdout.logits}
    labels = holdout.labels
    if solver == "sgd":  # thousands of tiny steps: a graphics card would wait for the host at each
        members, labels = {name: logits.cpu() for name, logits in members.items()}, labels.cpu()
    weights = _named_weights(lates.fit_stack(members, labels, solver=solver, loss=loss, seed=seed))
    names = (*(considered or tuple(probes)), HEAD)
    voting = {name: probe for name, probe in probes.items() if weights[name] > 0}
    return Fitted({name: weights.get(name, 0.0) for name in names}, voting)


def _named_weights(stack: lates.Stack) -> dict[str, float]:
    return dict(zip(stack.names, stack.weights.tolist(), strict=True))


def _stages(views: str, holdout: HoldOut) -> tuple[str, ...]:
    """Whatever the weights are fitted on, the decays of probes were chosen on the plain hold-out."""
    return tuple(
        dict.fromkeys(("extraction_holdout", *HOLDOUT_STAGES[holdout], f"extraction_{views}", f"probes_{views}"))
    )
