"""The methods compared: each is one function (what is prepared for a network) -> `Fitted`, and one line in the table `METHODS`.

LATES predicts by a stack: with members R_k(x), the logits of probes and of the head, and weights beta,

    logits(x) = sum_k beta_k R_k(x).

`rivals` has what others do with the same logits and features. The controls say where a gain comes from. Is it the solver
(`temperature_sgd`, `temperature_tau_sgd`) or the loss (`*_brier`)? Does the network's last layer hold it already, if fitted
again (`head_refitted_*`, `last_layer_grid`), or one other layer (`best_layer`)? Is it that views were seen at all
(`*_jittered_holdout`, `*_both_holdouts`, `*_robust_holdout`)?
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import lates
from experiments.evaluation.prepared import AVERAGE, DENSITY, MIRRORED, PAPER, VIEWS, HoldOut, Prepared, fit_model, only
from experiments.evaluation.rivals import (
    Rival,
    density,
    dirichlet,
    isotonic,
    mixture,
    parameterised,
    spline,
    structured,
    vector,
)
from experiments.evaluation.rivals import temperature as temperatures

HEAD = "head"
ONE_PERCENT = 0.01
BUDGETS: Mapping[str, float | None] = {"0.5": 0.005, "1": ONE_PERCENT, "2": 0.02, "5": 0.05, "all": None}
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
    learned   numbers that a rival learned and stores beside the network, apart from probes
    """

    predict: Predict
    weights: Mapping[str, float]
    probes: Mapping[str, lates.Probe] = field(default_factory=dict)
    reads: HoldOut = "plain"
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
    return Fitted(lambda features: features.logits, {HEAD: 1.0})


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


def logit_rival(prepared: Prepared, *, fit: Callable[..., Any], holdout: HoldOut = "plain", **options: Any) -> Fitted:
    """A rival that needs logits alone."""
    rows = prepared.holdouts[holdout]
    if rows.passes > 1:
        options["passes"] = rows.passes
    rival = fit(rows.logits, rows.labels, **options)
    reads: HoldOut = holdout if holdout in prepared.readers else "plain"
    return Fitted(lambda features: rival.log_probabilities(features.logits), {HEAD: 1.0}, reads=reads, learned=rival.parameters)


def density_aware(prepared: Prepared, *, neighbour: Literal["nearest", "kth"], then: Callable[..., Any]) -> Fitted:
    """A temperature for each row by its distance to the training images, then a rival on the logits so scaled."""
    rows = prepared.holdouts[DENSITY]
    weights = density.fit(rows.logits, rows.blocks[neighbour], rows.labels)

    def scaled(features: lates.Features) -> Tensor:
        return density.scaled(weights, features.logits, features.blocks[neighbour])

    rival: Rival = then(scaled(rows), rows.labels)
    return Fitted(
        lambda features: rival.log_probabilities(scaled(features)),
        {HEAD: 1.0},
        reads=DENSITY,
        learned=len(weights) + rival.parameters,
    )


def best_layer(prepared: Prepared, *, views: str) -> Fitted:
    """The probe, uncut, that by itself, at its best temperature, predicts the hold-out best."""
    probes = {name: trained.probe for name, trained in prepared.probes[views].items()}
    rows = prepared.holdout
    scaled = {name: temperatures.fit(probe.logits(rows.blocks[name]), rows.labels) for name, probe in probes.items()}
    best = min(scaled, key=lambda name: scaled[name].nll)
    return Fitted(
        lambda features: scaled[best].log_probabilities(probes[best].logits(features.blocks[best])),
        {best: scaled[best].beta, HEAD: 0.0},
        {best: probes[best]},
    )


def head_refitted(prepared: Prepared, *, views: str, holdout: HoldOut = "plain") -> Fitted:
    """The head trained again on the views that LATES' probes see, then temperature: the gain of views alone. It takes the
    place of the head, and adds nothing."""
    probe, rows = prepared.probes[views][AVERAGE].probe, prepared.holdouts[holdout]
    scaling = temperatures.fit(probe.logits(rows.blocks[AVERAGE]), rows.labels, passes=rows.passes)
    return Fitted(lambda features: scaling.log_probabilities(probe.logits(features.blocks[AVERAGE])), {HEAD: scaling.beta})


def layer_stack(
    prepared: Prepared,
    *,
    views: str = "robust",
    budget: float | None = ONE_PERCENT,
    blocks: Literal["usual", "last too", "last"] = "usual",
    cap: float | None = lates.DEFAULT.cap,
    holdout: HoldOut = "plain",
    copies: float = 0.0,
    **options: Any,
) -> Fitted:
    """LATES: probes trained on `views`, cut to the budget, then all weights at their optimum on the hold-out.

    Each probe's decay is always chosen on the plain one. With the last block alone it is the last layer, whose features are
    averaged over a 2 x 2 grid instead of the whole image, at equal parameters. For the weights, a robust copy of each image
    of the hold-out counts `copies`, the image 1. `options` are those of `lates.fit_stack`; where shift is expected, the
    hold-out has these copies too.
    """
    last = (prepared.last_block,)
    names = {"usual": prepared.blocks, "last too": tuple(dict.fromkeys(prepared.blocks + last)), "last": last}[blocks]
    trained = {name: prepared.probes[views][name] for name in names}
    cut = lates.fit_budget(trained, prepared.holdouts[holdout], budget, settings=replace(lates.DEFAULT, cap=cap))
    if copies:
        options["row_weights"] = torch.tensor([1.0, copies]).repeat_interleave(len(prepared.holdout.labels))
    if copies or options.get("expect_shift"):
        holdout = "robust"
    return stacked(prepared, cut, blocks=names, holdout=holdout, **options)


def stacked(
    prepared: Prepared,
    probes: Mapping[str, lates.Probe] | None = None,
    *,
    blocks: Collection[str] = (),
    holdout: HoldOut = "plain",
    solver: Literal["exact", "sgd"] = "exact",
    **options: Any,
) -> Fitted:
    """The calibrated model of probes on some of these `blocks` and of the head; without any it is temperature scaling.
    `options` are those of `lates.fit_stack`."""
    rows, probes = only(prepared.holdouts[holdout], blocks), probes or {}
    prior = (lates.PAPER if solver == "sgd" else lates.DEFAULT).prior
    model = fit_model(prepared.network, probes, rows, solver, prior=prior, seed=prepared.seed, **options)
    weights = dict(zip(model.fit.names, model.fit.weights.tolist(), strict=True))
    return Fitted(model.logits_of, weights, {name: probe for name, probe in probes.items() if weights[name] > 0})


def stack_then_structured(prepared: Prepared) -> Fitted:
    """LATES, then structured matrix scaling of its logits, both fitted on the same hold-out."""
    stack = layer_stack(prepared)
    rival = structured.fit(stack.predict(prepared.holdout), prepared.holdout.labels)
    return replace(stack, predict=lambda features: rival.log_probabilities(stack.predict(features)), learned=rival.parameters)


def layer_stack_of_the_paper(prepared: Prepared) -> Fitted:
    """`lates.PAPER_LITERAL`: flat pooling to 1 % of the parameters, flips, SGD for probes and stack."""
    probes = {name: trained.probe for name, trained in prepared.probes[PAPER].items()}
    return replace(stacked(prepared, probes, blocks=probes, holdout=PAPER, solver="sgd"), reads=PAPER)


PROBES: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "_capped": {"cap": 0.99},
    "_last": {"blocks": "last too"},
    "_last_capped": {"blocks": "last too", "cap": 0.99},
}
WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "_rescaled": {"expect_shift": True},
    "_light": {"copies": 0.25},
    "_robust_holdout": {"holdout": "robust"},
}
"""What may be done with the probes of robust views, and with the weights: the third round of `results/choosing-defaults.md`."""
METHODS: Mapping[str, Method] = {
    "network": network_alone,
    "temperature": stacked,
    "temperature_sgd": partial(stacked, solver="sgd"),
    "temperature_tau_sgd": temperature_by_tau,
    "temperature_brier": partial(stacked, loss="brier"),
    "temperature_jittered_holdout": partial(stacked, holdout="jittered"),
    "temperature_both_holdouts": partial(stacked, holdout="both"),
    "temperature_robust_holdout": partial(stacked, holdout="robust"),
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
    **{f"head_refitted_{views}": partial(head_refitted, views=views) for views in VIEWS},
    "head_refitted_both_holdouts": partial(head_refitted, views="jitter", holdout="both"),
    "head_refitted_robust_holdout": partial(head_refitted, views="robust", holdout="robust"),
    "last_layer_grid": partial(layer_stack, blocks="last"),
    "best_layer": partial(best_layer, views="robust"),
    "lates_paper": layer_stack_of_the_paper,
    **{
        f"lates_{views}_{percent}": partial(layer_stack, views=views, budget=budget)
        for views in VIEWS
        for percent, budget in BUDGETS.items()
        if views != "robust" or percent in ("1", "5")
    },
    "lates_robust_brier": partial(layer_stack, loss="brier"),
    **{
        f"lates{probes}{weights}": partial(layer_stack, **of_probes, **of_weights)
        for (probes, of_probes), (weights, of_weights) in product(PROBES.items(), WEIGHTS.items())
        if probes or weights
    },
    "lates_jittered_holdout": partial(layer_stack, views="jitter", holdout="jittered"),
    "lates_both_holdouts": partial(layer_stack, views="jitter", holdout="both"),
    "lates_last_block": partial(layer_stack, views="shift", blocks="last too"),
    "lates_robust_sms": stack_then_structured,
}
