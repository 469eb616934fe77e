"""A problem -> what each method predicts on each set of rows.

The methods differ in the training features alone, so all else is read once: the stages of `lates.calibrate`, called one by one.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import lates
from experiments.text_and_tables.problem import CLEAN, Problem

NETWORK, TEMPERATURE, NO_VIEWS = "network", "temperature", "no views"
HOLDOUT, TEST, LABELS = "holdout", "test", "labels"


def measure(problem: Problem, seed: int) -> dict[str, np.ndarray]:
    """ "split|method|set" -> log-probabilities [n, classes], float32, and "split|labels|set" -> labels [n].

    On the hold-out each half is predicted by a fit on the other half; on test rows, by a fit on the whole hold-out.
    """
    holdout = {name: lates.extract(problem.model, loader) for name, loader in problem.holdout.items()}
    clean = holdout[CLEAN]
    test = {name: lates.extract(problem.model, loader, like=clean) for name, loader in problem.test.items()}
    halves = [torch.arange(clean.rows) % 2 == side for side in (0, 1)]
    found: dict[str, np.ndarray] = {}
    for split, sets in ((HOLDOUT, holdout), (TEST, test)):
        for name, features in sets.items():
            found[f"{split}|{LABELS}|{name}"] = features.labels.numpy()
            found[f"{split}|{NETWORK}|{name}"] = _log_probabilities(features.logits)
    for method, views in {TEMPERATURE: None, NO_VIEWS: None, **problem.views}.items():
        train = lates.extract(problem.model, problem.train, like=clean, views=views, passes=None, seed=seed)
        fits = [_fit(method, train, rows_of(clean, half), problem.budget) for half in (*halves, halves[0] | halves[1])]
        for name, features in holdout.items():
            predicted = torch.empty_like(features.logits)
            for half, (probes, weights) in zip(reversed(halves), fits[:2], strict=True):
                predicted[half] = _predict(probes, weights, rows_of(features, half))
            found[f"{HOLDOUT}|{method}|{name}"] = _log_probabilities(predicted)
        for name, features in test.items():
            found[f"{TEST}|{method}|{name}"] = _log_probabilities(_predict(*fits[2], features))
    return found


def rows_of(features: lates.Features, chosen: Tensor) -> lates.Features:
    blocks = {name: values[chosen] for name, values in features.blocks.items()}
    return replace(features, blocks=blocks, logits=features.logits[chosen], labels=features.labels[chosen])


def _fit(
    method: str, train: lates.Features, holdout: lates.Features, budget: float
) -> tuple[dict[str, lates.Probe], dict[str, float]]:
    trained = {} if method == TEMPERATURE else lates.train_probes(train, holdout)
    probes = lates.fit_budget(trained, holdout, budget) if trained else {}
    members = lates.member_logits(probes, holdout)
    stack = lates.fit_stack(members, holdout.labels)
    return dict(probes), dict(zip(members, stack.weights.tolist(), strict=True))


def _predict(probes: Mapping[str, lates.Probe], weights: Mapping[str, float], rows: lates.Features) -> Tensor:
    members = lates.member_logits(dict(probes), rows)
    return torch.stack([weights[name] * logits for name, logits in members.items()]).sum(0)


def _log_probabilities(logits: Tensor) -> np.ndarray:
    return logits.double().log_softmax(1).float().numpy()
