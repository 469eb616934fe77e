"""The paper's theory in numbers: Proposition 1 on a population that is known exactly, and the pitfall of ECE.

Let f(β, z, y) = log(1 + exp(−y z·β)) with labels y = ±1 and members' margins z in R^d, |z| <= ρ: convex in β and
ρ-Lipschitz. On a hold-out of n draws

    β_L = argmin (λ/2)|β|² + mean f(β, z_i, y_i),      λ = c / sqrt(n),

and with β* the minimiser of the population loss L, the excess L(β_L) − L(β*) obeys

    mean excess <= B = (λ/2)|β*|² + 2ρ²/(λn),          P(excess >= ε) <= B / ε   (Markov).

The first term is half of what the paper prints. Its corollary is for a regulariser λ|β|²; for (λ/2)|β|² the argument
runs: replacing one draw moves the minimiser by Δ with λ|Δ|² <= 2ρ|Δ|/n (both objectives are λ-strongly convex), so the
loss moves by at most ρ|Δ| <= 2ρ²/(λn). The proposition bounds the probability that *any* weights beat β_L by ε,
temperature scaling among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import lates

Array = NDArray[np.float64]

SIZES = (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SAMPLES = 1_000
EPSILON = 0.01
NEWTON_STEPS = 30


@dataclass(frozen=True, eq=False)
class Population:
    """Finitely many outcomes: margins y·z [outcomes, members] of norm at most ρ, and their probabilities [outcomes].

    Labels follow P(y = 1 | z) = sigmoid(z·best), so that the population loss is least at `best`, by construction.
    """

    margins: Array
    probabilities: Array
    best: Array

    @property
    def lipschitz(self) -> float:
        return float(np.linalg.norm(self.margins, axis=1).max())

    def loss(self, weights: Array) -> Array:
        """L(β) [...] for weights β [..., members]."""
        return np.logaddexp(0, -weights @ self.margins.T) @ self.probabilities

    @property
    def best_temperature_loss(self) -> float:
        """The least loss of weights (0, …, 0, t), t real: what temperature scaling can reach at n = ∞."""
        head = Population(self.margins[:, -1:], self.probabilities, self.best[-1:])
        return float(head.loss(minimise(head.margins, self.probabilities[None], 0.0))[0])


def make_population(best: Sequence[float] = (0.6, 0.3, 0.9), points: int = 64, seed: int = 0) -> Population:
    """Points drawn evenly in the unit ball, scaled so that the farthest has norm 1 (ρ = 1); two labels for each."""
    random = np.random.default_rng(seed)
    directions = random.standard_normal((points, len(best)))
    radii = random.random((points, 1)) ** (1 / len(best))
    z = radii * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    z /= np.linalg.norm(z, axis=1).max()
    positive = 1 / (1 + np.exp(-z @ np.asarray(best)))
    probabilities = np.concatenate([positive, 1 - positive]) / points
    return Population(np.concatenate([z, -z]), probabilities, np.asarray(best, dtype=np.float64))


def minimise(margins: Array, frequencies: Array, decay: float) -> Array:
    """β [samples, members], the minimiser of (λ/2)|β|² + Σ_o frequency_o · log(1 + exp(−margin_o·β)) for every sample.

    Newton's method on all samples [samples, outcomes] at once: gradient λβ − Σ w σ(−m·β) m and Hessian
    λI + Σ w σ(1 − σ) m mᵀ. Bounded margins and weights of order one need no line search; the loop ends when no step
    exceeds 1e-13.
    """
    members = margins.shape[1]
    beta = np.zeros((len(frequencies), members))
    for _ in range(NEWTON_STEPS):
        sigma = 1 / (1 + np.exp(beta @ margins.T))  # σ(−m·β)
        gradient = decay * beta - (frequencies * sigma) @ margins
        curvature = frequencies * sigma * (1 - sigma)
        hessian = np.einsum("so,oi,oj->sij", curvature, margins, margins, optimize=True) + decay * np.eye(members)
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        beta = beta - step
        if np.abs(step).max() < 1e-13:
            return beta
    raise ArithmeticError(
        f"Newton's method took more than {NEWTON_STEPS} steps at decay {decay}; give more decay or a population whose "
        "labels are less certain."
    )


@dataclass(frozen=True)
class Excess:
    """Proposition 1 at one hold-out size: what was found over the samples, and what bounds it."""

    n: int
    mean: float
    mean_bound: float
    printed_mean_bound: float
    probability: float
    probability_bound: float
    beaten_by_temperature: float


def measure_excess(
    population: Population,
    sizes: Sequence[int] = SIZES,
    *,
    samples: int = SAMPLES,
    c: float = 1.0,
    epsilon: float = EPSILON,
    seed: int = 0,
) -> tuple[Excess, ...]:
    """Draw hold-outs of each size and see how far β_L stays from the best; `printed_mean_bound` is the paper's."""
    random = np.random.default_rng(seed)
    least = float(population.loss(population.best))
    temperature = population.best_temperature_loss
    norm, rho = float(population.best @ population.best), population.lipschitz
    excesses: list[Excess] = []
    for n in sizes:
        decay = c / n**0.5
        frequencies = random.multinomial(n, population.probabilities, size=samples) / n
        losses = population.loss(minimise(population.margins, frequencies, decay))
        bound = decay / 2 * norm + 2 * rho**2 / (decay * n)
        excesses.append(
            Excess(
                n=n,
                mean=float(losses.mean()) - least,
                mean_bound=bound,
                printed_mean_bound=bound + decay / 2 * norm,
                probability=float((losses - least >= epsilon).mean()),
                probability_bound=bound / epsilon,
                beaten_by_temperature=float((losses > temperature).mean()),
            )
        )
    return tuple(excesses)


@dataclass(frozen=True)
class Predictor:
    """A row of the paper's ECE figure: probabilities of class 1 for four points of labels 0, 0, 1, 1."""

    name: str
    positive: tuple[float, ...]
    scores: dict[str, float]


PITFALL_LABELS = (0, 0, 1, 1)
PITFALL_BINS = 10


def ece_pitfall() -> tuple[Predictor, Predictor]:
    """f₁ knows nothing and has no calibration error; f₂ is always right and has much. NLL and Brier are not fooled."""
    labels = np.asarray(PITFALL_LABELS)

    def scored(name: str, positive: tuple[float, ...]) -> Predictor:
        p = np.asarray(positive)
        logits = np.log(np.stack([1 - p, p], axis=1))
        scores = {
            "ece": lates.metrics.ece(logits, labels, bins=PITFALL_BINS),
            "accuracy": lates.metrics.accuracy(logits, labels),
            "nll": lates.metrics.nll(logits, labels),
            "brier": lates.metrics.brier(logits, labels),
        }
        return Predictor(name, positive, scores)

    return scored("f₁", (0.5,) * 4), scored("f₂", (0.3, 0.3, 0.7, 0.7))
