"""The methods compared: each is one function (what is prepared for a network) -> `Fitted`, and one line in the table `METHODS`.

Most predict by a stack: with members R_k(x), the logits of probes and of the head, and weights beta,

    logits(x) = sum_k beta_k R_k(x).

The controls say where a gain comes from. Is it the solver (`temperature_sgd`, `temperature_tau_sgd`) or the loss
(`temperature_brier`)? Does the network's last layer hold it already, if fitted again (`vector_scaling`, `head_refitted_*`)?
Is it that views were seen at all (`*_jittered_holdout`, `*_both_holdouts`)?
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import lates
from experiments.evaluation.prepared import AVERAGE, PAPER, HoldOut, Prepared
from lates import Probe, fit_budget

HEAD = "head"
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

Predict = Callable[[lates.Features], Tensor]
"""features of n images -> logits [n, classes]"""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A method ready to predict.

    predict   from features pooled as those of the hold-out named `reads`: "plain", or the "paper" one's flat ones
    weights   member -> beta, of all blocks considered; the head is the last
    probes    of the blocks whose weight is above 0
    stages    of the preparation that this method used, for its seconds
    """

    predict: Predict
    weights: Mapping[str, float]
    probes: Mapping[str, Probe] = dataclasses.field(default_factory=dict)
    reads: Literal["plain", "paper"] = "plain"
    stages: tuple[str, ...] = ("extraction_holdout",)

    def describe(self, network_parameters: int, network_flops: int) -> dict[str, Any]:
        """For the results. Parameters and FLOPs of the voting probes' matrix products as shares of the network's; a dense
        probe has as many ranks as classes."""
        total = sum(self.weights.values())
        products = sum(probe.parameters - len(probe.bias) for probe in self.probes.values())
        return {
            "weights": dict(self.weights),
            "contributions": {name: weight / total if total > 0 else 0.0 for name, weight in self.weights.items()},
            "ranks": {name: len(probe.down) for name, probe in self.probes.items()},
            "parameters": sum(probe.parameters for probe in self.probes.values()) / network_parameters,
            "flops": 2 * products / network_flops,
        }


Method = Callable[[Prepared], Fitted]


def network_alone(prepared: Prepared) -> Fitted:
    return Fitted(lambda features: features.logits, {HEAD: 1.0}, stages=())


def temperature(
    prepared: Prepared, *, loss: str = "nll", solver: Literal["exact", "sgd"] = "exact", holdout: HoldOut = "plain"
) -> Fitted:
    """softmax(beta z): the stack with the head as its only member."""
    fitted = _stacked(prepared, {}, holdout, solver=solver, loss=loss)
    return dataclasses.replace(fitted, stages=HOLDOUT_STAGES[holdout])


def temperature_by_tau(prepared: Prepared) -> Fitted:
    """softmax(z / tau) by the paper's SGD in tau rather than in beta = 1 / tau, with the same rate, batch and epochs.

    With p = softmax(z / tau) a row's loss has d/dtau = -(1 / tau²) (sum_c p_c z_c - z_y).
    """
    logits, labels = prepared.holdout.logits.double().cpu(), prepared.holdout.labels.cpu()
    excess = (logits - logits.gather(1, labels[:, None])).numpy()  # torch would split each small step among threads
    generator = torch.Generator().manual_seed(prepared.seed)
    tau = 1.0
    for _ in range(TAU_EPOCHS):
        for batch in torch.randperm(len(labels), generator=generator).split(TAU_BATCH):
            rows = excess[batch.numpy()]
            powers = np.exp((rows - rows.max(1, keepdims=True)) / tau)
            slope = -float(((powers * rows).sum(1) / powers.sum(1)).mean()) / tau**2
            tau = max(tau - TAU_RATE * slope, SMALLEST_TAU)
    return Fitted(lambda features: features.logits / tau, {HEAD: 1 / tau})


def vector_scaling(prepared: Prepared) -> Fitted:
    """softmax(a ⊙ z + b), a and b [classes] fitted to the log-loss, which is convex in them, by L-BFGS from (1, 0)."""
    logits, labels = prepared.holdout.logits.double(), prepared.holdout.labels
    scales = torch.ones(logits.shape[1], dtype=torch.float64, device=logits.device, requires_grad=True)
    shifts = torch.zeros_like(scales, requires_grad=True)
    optimiser = torch.optim.LBFGS([scales, shifts], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(scales * logits + shifts, labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    a, b = scales.detach().float(), shifts.detach().float()
    return Fitted(lambda features: a * features.logits + b, {HEAD: 1.0})


def head_refitted(prepared: Prepared, *, views: str, holdout: HoldOut = "plain") -> Fitted:
    """The head trained again on the views that LATES' probes see, then temperature: the gain of views alone."""
    probe, rows = prepared.probes[views][AVERAGE].probe, prepared.holdouts[holdout]
    weights = _named_weights(
        lates.fit_stack({HEAD: probe.logits(rows.blocks[AVERAGE])}, rows.labels, passes=rows.passes)
    )

    def predict(features: lates.Features) -> Tensor:
        return weights[HEAD] * probe.logits(features.blocks[AVERAGE])

    return Fitted(predict, weights, stages=_stages(views, holdout))


def layer_stack(
    prepared: Prepared, *, views: str, budget: float | None, last_block: bool = False, holdout: HoldOut = "plain"
) -> Fitted:
    """LATES: probes trained on `views`, cut to the budget, then all weights at their optimum on the hold-out.

    Each probe's decay is always chosen on the plain one.
    """
    names = prepared.blocks
    if last_block and prepared.last_block not in names:
        names = (*names, prepared.last_block)
    trained = {name: prepared.probes[views][name] for name in names}
    fitted = _stacked(prepared, fit_budget(trained, prepared.holdouts[holdout], budget), holdout, considered=names)
    return dataclasses.replace(fitted, stages=_stages(views, holdout))


def layer_stack_of_the_paper(prepared: Prepared) -> Fitted:
    """Algorithm 1 to the letter: flat pooling to 1 % of the parameters, flips, SGD for probes and stack."""
    probes = {name: trained.probe for name, trained in prepared.probes[PAPER].items()}
    fitted = _stacked(prepared, probes, PAPER, solver="sgd")
    return dataclasses.replace(fitted, reads=PAPER, stages=(*HOLDOUT_STAGES[PAPER], "probes_paper"))


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
    prepared: Prepared,
    probes: Mapping[str, Probe],
    holdout: HoldOut,
    *,
    considered: tuple[str, ...] | None = None,
    solver: Literal["exact", "sgd"] = "exact",
    loss: str = "nll",
) -> Fitted:
    """The calibrated model of these probes and the head; blocks `considered` that got no probe weigh 0."""
    rows = prepared.holdouts[holdout]
    members, labels = lates.member_logits(probes, rows), rows.labels
    if solver == "sgd":  # thousands of tiny steps: a GPU would wait for the host at each
        members, labels = {name: logits.cpu() for name, logits in members.items()}, labels.cpu()
    prior = (lates.PAPER if solver == "sgd" else lates.DEFAULT).prior
    stack = lates.fit_stack(
        members, labels, solver=solver, loss=loss, prior=prior, seed=prepared.seed, passes=rows.passes
    )
    poolings = {name: rows.poolings[name] for name in considered or probes}
    model = lates.CalibratedModel.assemble(prepared.network, [probes], stack, [poolings])
    weights = _named_weights(model.fit)
    return Fitted(model.logits_of, weights, {name: probe for name, probe in probes.items() if weights[name] > 0})


def _named_weights(stack: lates.Stack) -> dict[str, float]:
    return dict(zip(stack.names, stack.weights.tolist(), strict=True))


def _stages(views: str, holdout: HoldOut) -> tuple[str, ...]:
    """Whatever the weights are fitted on, the decays of probes were chosen on the plain hold-out."""
    return tuple(
        dict.fromkeys(("extraction_holdout", *HOLDOUT_STAGES[holdout], f"extraction_{views}", f"probes_{views}"))
    )
