"""Rivals on logits: laws that all obey, and each against an oracle or a known answer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss

from experiments.evaluation.rivals import (
    dirichlet,
    isotonic,
    mixture,
    parameterised,
    spline,
    structured,
    temperature,
    vector,
)
from experiments.evaluation.rivals.descent import brier, minimise
from tests.experiments.evaluation.rivals.problems import confused, overconfident

RIVALS: dict[str, Callable[..., Any]] = {
    "temperature": temperature.fit,
    "vector": vector.fit,
    "svs": partial(structured.fit, diagonal=True),
    "sms": structured.fit,
    "dirichlet": dirichlet.fit,
    "ets": mixture.fit,
    "isotonic": isotonic.fit,
    "spline": spline.fit,
    "parameterised": parameterised.fit,
}


def nll(rival: Any, logits: Tensor, labels: Tensor) -> float:
    return float(nll_loss(rival.log_probabilities(logits), labels))


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_mend_overconfidence_with_finite_log_probabilities(name: str) -> None:
    """On new rows all come near the truth, which drew the labels; the network is far off."""
    rival = RIVALS[name](*overconfident())
    assert rival.parameters >= 1
    logits, labels = overconfident(seed=1)
    found, truth, network = (
        nll(rival, logits, labels),
        float(cross_entropy(0.4 * logits, labels)),
        float(cross_entropy(logits, labels)),
    )
    assert truth - 0.01 < found < truth + 0.2 * (network - truth)
    wild = 1000 * torch.randn(50, 5, generator=torch.Generator().manual_seed(2))
    logs = rival.log_probabilities(torch.cat([logits, wild]))
    assert logs.isfinite().all()
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(len(logs), dtype=torch.float64))


@pytest.mark.parametrize("name", ["sms", "dirichlet"])
def test_matrices_mend_confused_classes_and_vectors_do_not(name: str) -> None:
    logits, labels = confused(seed=1)
    matrix, diagonal = (nll(RIVALS[each](*confused(2000)), logits, labels) for each in (name, "vector"))
    assert matrix < diagonal - 0.05


def test_descent_finds_the_minimum_within_bounds() -> None:
    centre = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    found = minimise(lambda x: (x - centre).pow(4).sum(), torch.zeros_like(centre), [(None, 0.5), (0, None), (None, None)])
    assert found.tolist() == pytest.approx([0.5, 0, 3], abs=1e-2)


def test_vector_scaling_is_at_the_optimum_of_scipy() -> None:
    logits, labels = confused(500)

    def objective(values: np.ndarray) -> float:
        scales, shifts = torch.from_numpy(values).chunk(2)
        return cross_entropy(scales * logits.double() + shifts, labels).item()

    best = minimize(objective, np.concatenate([np.ones(5), np.zeros(5)]), method="BFGS")
    assert nll(vector.fit(logits, labels), logits, labels) == pytest.approx(best.fun, abs=1e-7)


@pytest.mark.parametrize("diagonal", [False, True])
def test_structured_scaling_is_at_the_optimum_of_its_objective(diagonal: bool) -> None:
    """Built anew, entry by entry, and solved by another method."""
    rows, classes = 300, 3
    logits, labels = confused(rows, classes)
    rival = structured.fit(logits, labels, diagonal=diagonal)
    p = temperature.fit(logits, labels).log_probabilities(logits).exp().numpy()
    x = np.log(rows / (rows + 1) * p + 1 / (classes * (rows + 1)))

    def parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return values[:classes], np.diag(values[classes:]) if diagonal else values[classes:].reshape(classes, classes)

    def mapped(values: np.ndarray) -> np.ndarray:
        b, change = parts(values)
        return x + x @ change.T + b

    def objective(values: np.ndarray) -> float:
        (b, change), z = parts(values), mapped(values)
        loss = np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(rows), labels])
        off = change[~np.eye(classes, dtype=bool)]
        weak = np.square(b).sum() + np.square(np.diag(change)).sum()
        return loss + classes / rows * weak + classes * (classes - 1) / rows * np.square(off).sum()

    best = minimize(objective, np.zeros(classes + (classes if diagonal else classes**2)), method="BFGS")
    expected = torch.from_numpy(mapped(best.x)).log_softmax(1)
    torch.testing.assert_close(rival.log_probabilities(logits), expected, atol=1e-3, rtol=0)


def test_dirichlet_without_much_decay_is_scikit_learns_logistic_regression() -> None:
    logits, labels = confused(2000)
    rival = dirichlet.fit(logits, labels)
    x = dirichlet.logs_of(logits).numpy()
    oracle = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-10).fit(x, labels.numpy())
    expected = float(nll_loss(torch.from_numpy(oracle.predict_log_proba(x)), labels))
    assert expected <= nll(rival, logits, labels) <= expected + 2e-3


def test_mixture_weights_are_the_best_of_the_simplex() -> None:
    logits, labels = overconfident(beta=0.3)
    z = logits.double()
    found = float(brier(mixture.fit(logits, labels).log_probabilities(logits).exp(), labels))
    best: Any = minimize(lambda tau: float(brier((z / tau[0]).softmax(1), labels)), [1.0], tol=1e-12)
    tau = float(best.x[0])
    parts = torch.stack([(z / tau).softmax(1), z.softmax(1), torch.full_like(z, 0.2)])
    others = np.concatenate([np.eye(3), np.random.default_rng(0).dirichlet(np.ones(3), 200)])
    mixed = torch.einsum("wk,knc->wnc", torch.from_numpy(others), parts)
    assert found <= min(float(brier(each, labels)) for each in mixed) + 1e-9


def test_isotonic_is_scikit_learns_on_all_pairs() -> None:
    logits, labels = overconfident(400)
    rival = isotonic.fit(logits, labels)
    p = logits.double().softmax(1)
    oracle = IsotonicRegression(out_of_bounds="clip").fit(
        p.flatten().numpy(), torch.nn.functional.one_hot(labels, 5).flatten().numpy()
    )
    new = overconfident(400, seed=1)[0].double().softmax(1)
    mapped = torch.from_numpy(oracle.predict(new.flatten().numpy())).view_as(new) + 1e-9 * new
    expected = (400 * mapped / mapped.sum(1, keepdim=True) + 0.2) / 401
    torch.testing.assert_close(rival.log_probabilities(new.log()).exp(), expected, atol=1e-6, rtol=0)
    assert torch.equal(rival.log_probabilities(new.log()).argmax(1), new.argmax(1))


def test_spline_gives_the_top_label_its_chance_and_the_others_the_rest_in_proportion() -> None:
    logits, labels = overconfident(20_000)
    rival = spline.fit(logits, labels)
    logs = rival.log_probabilities(logits)
    top, place = logs.exp().max(1)
    order = top.argsort()
    for part in order.chunk(8):
        assert float(top[part].mean()) == pytest.approx(float((place == labels)[part].double().mean()), abs=0.03)
    before = temperature.fit(logits, labels).log_probabilities(logits)
    others = before.argsort(1)[:, :2]
    torch.testing.assert_close(logs.gather(1, others).diff(), before.gather(1, others).diff())


def test_parameterised_temperature_follows_the_row() -> None:
    """Rows of small logits are drawn at their own temperature, rows of large ones at a third of it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6000, 5, generator=generator)
    logits[::2] *= 6
    betas = torch.ones(6000, 1)
    betas[::2] = 1 / 3
    labels = (betas * logits).softmax(1).multinomial(1, generator=generator)[:, 0]
    rival = parameterised.fit(logits, labels)
    best, single = float(cross_entropy(betas * logits, labels)), nll(temperature.fit(logits, labels), logits, labels)
    assert nll(rival, logits, labels) < best + 0.35 * (single - best)
