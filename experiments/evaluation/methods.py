"""The methods compared: each is one function (what is prepared for a network) -> `Fitted`, and one line in the table `METHODS`.

LATES predicts by a stack: with members R_k(x), the logits of probes and of the head, and weights beta,

    logits(x) = sum_k beta_k R_k(x).

`rivals` has what others do with the same logits and features. The controls say where a gain comes from. Is it the solver
(`temperature_sgd`, `temperature_tau_sgd`) or the loss (`*_brier`)? Does the network's last layer hold it already, if fitted
again (`head_refitted_*`, `last_layer_grid`), or one other layer (`best_layer`)? Is it that views were seen at all
(`*_jittered_holdout`, `*_both_holdouts`, `*_robust_holdout`)?
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import lates
from experiments.evaluation.prepared import AVERAGE, DENSITY, MIRRORED, PAPER, SHIFTED, VIEWS, HoldOut, Prepared
from experiments.evaluation.rivals import (
    density,
    dirichlet,
    isotonic,
    layer,
    mixture,
    parameterised,
    spline,
    structured,
    vector,
)
from experiments.evaluation.rivals import temperature as temperatures
from lates import Probe, fit_budget

HEAD = "head"
HOLDOUT_STAGES: Mapping[HoldOut, tuple[str, ...]] = {
    "plain": ("extraction_holdout",),
    "jittered": ("extraction_jittered_holdout",),
    "both": ("extraction_holdout", "extraction_jittered_holdout"),
    "robust": ("extraction_holdout", "extraction_robust_holdout"),
    **{name: (f"extraction_{name}",) for name in (PAPER, DENSITY, MIRRORED, SHIFTED)},
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

    predict   from features as the reader named `reads` gives them
    weights   member -> beta, of all blocks considered; the head is the last
    probes    of the blocks whose weight is above 0
    stages    of the preparation that this method used, for its seconds
    learned   numbers that a rival learned and stores beside the network, apart from probes
    """

    predict: Predict
    weights: Mapping[str, float]
    probes: Mapping[str, Probe] = dataclasses.field(default_factory=dict)
    reads: HoldOut = "plain"
    stages: tuple[str, ...] = ("extraction_holdout",)
    learned: int = 0

    def describe(self, network_parameters: int, network_flops: int) -> dict[str, Any]:
        """For the results. Parameters and FLOPs of the voting probes' matrix products as shares of the network's; a dense
        probe has as many ranks as classes."""
        total = sum(self.weights.values())
        products = sum(probe.parameters - len(probe.bias) for probe in self.probes.values())
        return {
            "weights": dict(self.weights),
            "contributions": {name: weight / total if total > 0 else 0.0 for name, weight in self.weights.items()},
            "ranks": {name: len(probe.down) for name, probe in self.probes.items()},
            "parameters": (sum(probe.parameters for probe in self.probes.values()) + self.learned) / network_parameters,
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
    """softmax(z / tau) by the paper's SGD in tau rather than in beta = 1 / tau, with the same rate, batch and epochs."""
    logits, labels = prepared.holdout.logits.double().cpu(), prepared.holdout.labels.cpu()
    generator = torch.Generator().manual_seed(prepared.seed)
    tau = torch.ones((), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        for _ in range(TAU_EPOCHS):
            for batch in torch.randperm(len(labels), generator=generator).split(TAU_BATCH):
                (slope,) = torch.autograd.grad(cross_entropy(logits[batch] / tau, labels[batch]), tau)
                tau.data = (tau.data - TAU_RATE * slope).clamp(min=SMALLEST_TAU)
    learned = tau.item()
    return Fitted(lambda features: features.logits / learned, {HEAD: 1 / learned})


class Rival(Protocol):
    @property
    def parameters(self) -> int: ...

    def log_probabilities(self, logits: Tensor, /) -> Tensor: ...


def logit_rival(prepared: Prepared, *, fit: Callable[..., Rival], holdout: HoldOut = "plain", **options: Any) -> Fitted:
    """A rival that needs logits alone."""
    rows = prepared.holdouts[holdout]
    if rows.passes > 1:
        options["passes"] = rows.passes
    rival = fit(rows.logits, rows.labels, **options)
    return Fitted(
        lambda features: rival.log_probabilities(features.logits),
        {HEAD: 1.0},
        reads=holdout if holdout in prepared.readers else "plain",
        stages=HOLDOUT_STAGES[holdout],
        learned=rival.parameters,
    )


def density_aware(prepared: Prepared, *, neighbour: Literal["nearest", "kth"], then: Callable[..., Rival]) -> Fitted:
    """A temperature for each row by its distance to the training images, then a rival on the logits so scaled."""
    rows = prepared.holdouts[DENSITY]
    aware = density.fit(rows.logits, rows.blocks[neighbour], rows.labels)
    rival = then(aware.scaled(rows.logits, rows.blocks[neighbour]), rows.labels)

    def predict(features: lates.Features) -> Tensor:
        return rival.log_probabilities(aware.scaled(features.logits, features.blocks[neighbour]))

    learned = aware.parameters + rival.parameters
    return Fitted(predict, {HEAD: 1.0}, reads=DENSITY, stages=HOLDOUT_STAGES[DENSITY], learned=learned)


def head_refitted(prepared: Prepared, *, views: str, holdout: HoldOut = "plain") -> Fitted:
    """The head trained again on the views that LATES' probes see, then temperature: the gain of views alone. It takes the
    place of the head, and adds nothing."""
    fitted = layer.fit({AVERAGE: prepared.probes[views][AVERAGE].probe}, prepared.holdouts[holdout])
    return Fitted(fitted.log_probabilities, {HEAD: fitted.start.beta}, stages=_stages(views, holdout))


def best_layer(prepared: Prepared, *, views: str) -> Fitted:
    """The probe, uncut, that by itself predicts the hold-out best."""
    probes = {name: trained.probe for name, trained in prepared.probes[views].items()}
    fitted = layer.fit(probes, prepared.holdout)
    chosen, weights = {fitted.block: fitted.probe}, {fitted.block: fitted.start.beta, HEAD: 0.0}
    return Fitted(fitted.log_probabilities, weights, chosen, stages=_stages(views, "plain"))


def layer_stack(
    prepared: Prepared,
    *,
    views: str,
    budget: float | None,
    blocks: Literal["usual", "last too", "last"] = "usual",
    holdout: HoldOut = "plain",
    loss: str = "nll",
) -> Fitted:
    """LATES: probes trained on `views`, cut to the budget, then all weights at their optimum on the hold-out.

    Each probe's decay is always chosen on the plain one. With the last block alone it is the last layer, whose features are
    averaged over a 2 x 2 grid instead of the whole image, at equal parameters.
    """
    last = (prepared.last_block,)
    names = {"usual": prepared.blocks, "last too": tuple(dict.fromkeys(prepared.blocks + last)), "last": last}[blocks]
    trained = {name: prepared.probes[views][name] for name in names}
    cut = fit_budget(trained, prepared.holdouts[holdout], budget)
    fitted = _stacked(prepared, cut, holdout, considered=names, loss=loss)
    return dataclasses.replace(fitted, stages=_stages(views, holdout))


def rescaled(prepared: Prepared, *, loss: str) -> Fitted:
    """LATES with robust views, all weights then multiplied by the number that is best on the robust hold-out."""
    stack, both = layer_stack(prepared, views="robust", budget=ONE_PERCENT, loss=loss), prepared.holdouts["robust"]
    start = temperatures.fit(stack.predict(both), both.labels, passes=both.passes)
    return dataclasses.replace(
        stack,
        predict=lambda features: start.log_probabilities(stack.predict(features)),
        weights={name: start.beta * weight for name, weight in stack.weights.items()},
        stages=_stages("robust", "robust"),
    )


def stack_then_structured(prepared: Prepared, *, views: str, budget: float) -> Fitted:
    """LATES, then structured matrix scaling of its logits, both fitted on the same hold-out."""
    stack = layer_stack(prepared, views=views, budget=budget)
    rival = structured.fit(stack.predict(prepared.holdout), prepared.holdout.labels)
    return dataclasses.replace(
        stack, predict=lambda features: rival.log_probabilities(stack.predict(features)), learned=rival.parameters
    )


def layer_stack_of_the_paper(prepared: Prepared) -> Fitted:
    """`lates.PAPER_LITERAL`: flat pooling to 1 % of the parameters, flips, SGD for probes and stack."""
    probes = {name: trained.probe for name, trained in prepared.probes[PAPER].items()}
    fitted = _stacked(prepared, probes, PAPER, solver="sgd")
    return dataclasses.replace(fitted, reads=PAPER, stages=(*HOLDOUT_STAGES[PAPER], "probes_paper"))


ONE_PERCENT = 0.01
METHODS: Mapping[str, Method] = {
    "network": network_alone,
    "temperature": temperature,
    "temperature_sgd": partial(temperature, solver="sgd"),
    "temperature_tau_sgd": temperature_by_tau,
    "temperature_brier": partial(temperature, loss="brier"),
    "temperature_jittered_holdout": partial(temperature, holdout="jittered"),
    "temperature_both_holdouts": partial(temperature, holdout="both"),
    "temperature_robust_holdout": partial(temperature, holdout="robust"),
    "vector_scaling": partial(logit_rival, fit=vector.fit),
    "svs": partial(logit_rival, fit=structured.fit, diagonal=True),
    "sms": partial(logit_rival, fit=structured.fit),
    "sms_robust_holdout": partial(logit_rival, fit=structured.fit, holdout="robust"),
    "dirichlet": partial(logit_rival, fit=dirichlet.fit),
    "ets": partial(logit_rival, fit=mixture.fit),
    "isotonic": partial(logit_rival, fit=isotonic.fit),
    "spline": partial(logit_rival, fit=spline.fit),
    "parameterised": partial(logit_rival, fit=parameterised.fit),
    **{
        f"density_{neighbour}{name}": partial(density_aware, neighbour=neighbour, then=then)
        for neighbour in ("nearest", "kth")
        for name, then in (("", temperatures.fit), ("_ets", mixture.fit))
    },
    "tta_mirror": partial(logit_rival, fit=temperatures.fit, holdout=MIRRORED),
    "tta_shift": partial(logit_rival, fit=temperatures.fit, holdout=SHIFTED),
    **{f"head_refitted_{views}": partial(head_refitted, views=views) for views in VIEWS},
    "head_refitted_both_holdouts": partial(head_refitted, views="jitter", holdout="both"),
    "head_refitted_robust_holdout": partial(head_refitted, views="robust", holdout="robust"),
    "last_layer_grid": partial(layer_stack, views="robust", budget=ONE_PERCENT, blocks="last"),
    "best_layer": partial(best_layer, views="robust"),
    "lates_paper": layer_stack_of_the_paper,
    **{
        f"lates_{views}_{percent}": partial(layer_stack, views=views, budget=budget)
        for views in VIEWS
        for percent, budget in BUDGETS.items()
    },
    **{
        f"lates_{views}_brier": partial(layer_stack, views=views, budget=ONE_PERCENT, loss="brier")
        for views in ("none", "shift", "jitter")
    },
    "lates_robust_brier": partial(layer_stack, views="robust", budget=ONE_PERCENT, loss="brier"),
    "lates_rescaled": partial(rescaled, loss="nll"),
    "lates_brier_rescaled": partial(rescaled, loss="brier"),
    "lates_jittered_holdout": partial(layer_stack, views="jitter", budget=ONE_PERCENT, holdout="jittered"),
    "lates_both_holdouts": partial(layer_stack, views="jitter", budget=ONE_PERCENT, holdout="both"),
    "lates_robust_holdout": partial(layer_stack, views="robust", budget=ONE_PERCENT, holdout="robust"),
    "lates_last_block": partial(layer_stack, views="shift", budget=ONE_PERCENT, blocks="last too"),
    "lates_robust_sms": partial(stack_then_structured, views="robust", budget=ONE_PERCENT),
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
    weights = dict(zip(model.fit.names, model.fit.weights.tolist(), strict=True))
    return Fitted(model.logits_of, weights, {name: probe for name, probe in probes.items() if weights[name] > 0})


def _stages(views: str, holdout: HoldOut) -> tuple[str, ...]:
    """Whatever the weights are fitted on, the decays of probes were chosen on the plain hold-out."""
    return tuple(
        dict.fromkeys(("extraction_holdout", *HOLDOUT_STAGES[holdout], f"extraction_{views}", f"probes_{views}"))
    )
