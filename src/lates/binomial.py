"""The exact tail of the binomial distribution, which tests in several places need; scipy is not a dependency."""

import torch


def binomial_tail(least: int, trials: int, chance: float) -> float:
    """The probability of at least this many successes, summed from its terms in float64."""
    k = torch.arange(least, trials + 1, dtype=torch.float64)
    n, p = torch.tensor([trials, chance], dtype=torch.float64)
    choices = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
    return float((choices + torch.xlogy(k, p) + torch.xlogy(n - k, 1 - p)).exp().sum())
