"""The smooth ECE of Błasiok & Nakkiran (2023): no bins, and a bandwidth that the data choose.

With confidences f_i, correctness y_i and the Gaussian kernel K of bandwidth sigma reflected at 0 and 1, let
r(t) = (1/n) sum_i (y_i - f_i) K(t, f_i) and e(sigma) = integral over [0, 1] of |r(t)|. Smoothing only cancels, so e
does not increase with sigma, and the smooth ECE is the one sigma at which e(sigma) = sigma. It lies between
|mean(y - f)|, the limit of infinite smoothing, and mean|y - f|, an upper bound on any.

Reflection makes r even and periodic of period 2, a sum of cosines, in which the bandwidth appears apart from the data:

    r(t) = sum_k c_k exp(i pi k t),    c_k = exp(-(pi k sigma)^2 / 2) (1/n) sum_i (y_i - f_i) cos(pi k f_i).

The integral of |r| is the variation of R, the antiderivative of r, between the zeros of r; there R is flat, so that an error
in a zero enters only squared.
"""

import math

import torch
from torch import Tensor

from lates.metrics.rows import Array, Rows, describe_rows
from lates.runtime import on_one_core

STEPS_PER_BANDWIDTH = 16
ORDERS = 10
SMALLEST_BANDWIDTH = 1e-5
TOLERANCE = 1e-9


def grid_of(bandwidth: float) -> int:
    """m of the grid j / m, j = 0 … 2m - 1, that resolves this bandwidth."""
    return 2 ** math.ceil(math.log2(STEPS_PER_BANDWIDTH / bandwidth))


def spectrum_of(rows: Rows, m: int) -> Tensor:
    """2m c_k, k = 0 … m, without the Gaussian factor: the Fourier transform of the residuals on the grid j / m.

    A row lies at j / m + d, |d| <= 1 / 2m, and adds to the sum over rows the real part of

        exp(-i pi k (j / m + d)) = exp(-i pi k j / m) sum_p (-i pi k d)^p / p!,

    so that moments of d per grid point, and one transform for each, are all that is needed. With m sigma >= 16 what is left
    out, times the Gaussian factor, is below 1e-12 of the residuals' size.
    """
    nodes = (rows.confidence * m).round()
    offsets, nodes = rows.confidence - nodes / m, nodes.long()
    frequency = math.pi * torch.arange(m + 1, dtype=torch.float64)
    terms, factor = (rows.correct - rows.confidence) * (2 * m / len(rows)), torch.ones(m + 1, dtype=torch.complex128)
    spectrum = torch.zeros(m + 1, dtype=torch.float64)
    for order in range(1, ORDERS + 1):
        spectrum += (factor * torch.fft.rfft(torch.bincount(nodes, terms, minlength=2 * m))).real
        terms, factor = terms * offsets, factor * (frequency / order * -1j)
    return spectrum


def smoothed(spectrum: Tensor, bandwidth: float) -> Tensor:
    frequency = math.pi * torch.arange(len(spectrum), dtype=torch.float64)
    return spectrum * torch.exp(-0.5 * (frequency * bandwidth) ** 2)


def absolute_integral(spectrum: Tensor) -> float:
    """The integral over [0, 1] of |r| for the even, periodic r of this spectrum."""
    m = len(spectrum) - 1
    frequency = math.pi * torch.arange(m + 1, dtype=torch.float64)
    mean = float(spectrum[0]) / (2 * m)
    wave = torch.cat([torch.zeros(1, dtype=torch.complex128), spectrum[1:] / (1j * frequency[1:])])
    r = torch.fft.irfft(spectrum, n=2 * m)[: m + 1]
    R = torch.fft.irfft(wave, n=2 * m)[: m + 1] + mean * torch.arange(m + 1, dtype=torch.float64) / m
    crosses = r[:-1] * r[1:] < 0
    left, right, R_left, R_right = r[:-1][crosses], r[1:][crosses], R[:-1][crosses], R[1:][crosses]
    u = left / (left - right)  # where the chord meets zero, as a fraction of the step
    R_zero = (
        R_left + (R_right - R_left) * u**2 * (3 - 2 * u) + (left * u * (1 - u) ** 2 - right * u**2 * (1 - u)) / m
    )  # the cubic through both ends with their slopes r
    monotone = R.diff()[~crosses].abs().sum()
    return float(monotone + (R_zero - R_left).abs().sum() + (R_right - R_zero).abs().sum())


def ece_smooth_of_rows(rows: Rows) -> float:
    return on_one_core(_fixed_point, rows)


def _fixed_point(rows: Rows) -> float:
    residuals = rows.correct - rows.confidence
    low, high = max(abs(float(residuals.mean())), SMALLEST_BANDWIDTH), float(residuals.abs().mean())
    if high - low <= TOLERANCE:
        return high
    spectrum = torch.empty(0)
    while high - low > TOLERANCE:
        bandwidth = (low + high) / 2
        if len(spectrum) != grid_of(bandwidth) + 1:
            spectrum = spectrum_of(rows, grid_of(bandwidth))
        larger = absolute_integral(smoothed(spectrum, bandwidth)) >= bandwidth
        low, high = (bandwidth, high) if larger else (low, bandwidth)
    return (low + high) / 2


def ece_smooth(logits: Array, labels: Array) -> float:
    """Smooth ECE of the confidence: the bandwidth at which the smoothed calibration error equals the bandwidth.

    Found to 1e-9 by bisection. Where the bandwidth would be below 1e-5, 1e-5 is returned: the error is at most that.
    """
    return ece_smooth_of_rows(describe_rows(logits, labels))
