"""A problem -> what each method predicts on each set of rows.

The methods differ in the training features alone, so all else is read once: the stages of `lates.calibrate`, called one by one.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import lates
from experiments.evaluation.prepared import fit_model
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
    predictions: dict[str, np.ndarray] = {}
    for split, sets in ((HOLDOUT, holdout), (TEST, test)):
        for name, features in sets.items():
            predictions[f"{split}|{LABELS}|{name}"] = features.labels.numpy()
            predictions[f"{split}|{NETWORK}|{name}"] = _log_probabilities(features.logits)
    for method, views in {TEMPERATURE: None, NO_VIEWS: None, **problem.views}.items():
        train = lates.extract(problem.model, problem.train, like=clean, views=views, passes=None, seed=seed)
        fits: list[Callable[[lates.Features], Tensor]] = []
        for rows in (*(rows_of(clean, half) for half in halves), clean):
            trained = {} if method == TEMPERATURE else lates.train_probes(train, rows)
            fits.append(fit_model(problem.model, lates.fit_budget(trained, rows, problem.budget), rows).logits_of)
        for name, features in holdout.items():
            predicted = torch.empty_like(features.logits)
            for half, predict in zip(reversed(halves), fits[:2], strict=True):
                predicted[half] = predict(rows_of(features, half))
            predictions[f"{HOLDOUT}|{method}|{name}"] = _log_probabilities(predicted)
        for name, features in test.items():
            predictions[f"{TEST}|{method}|{name}"] = _log_probabilities(fits[2](features))
    return predictions


def rows_of(features: lates.Features, chosen: Tensor) -> lates.Features:
    blocks = {name: values[chosen] for name, values in features.blocks.items()}
    return replace(features, blocks=blocks, logits=features.logits[chosen], labels=features.labels[chosen])


def _log_probabilities(logits: Tensor) -> np.ndarray:
    return logits.double().log_softmax(1).float().numpy()
