"""Random numbers that belong to an image, not to a batch or a device.

Every number is a pure function of (seed, stream, purpose, image, position), computed by Philox4x32-10, the
counter-based generator of Salmon et al. (2011): ten rounds of a keyed bijection on four 32-bit words,

    (c0, c1, c2, c3) -> (hi(M1·c2) ^ c1 ^ k0,  lo(M1·c2),  hi(M0·c0) ^ c3 ^ k1,  lo(M0·c0)),

the key growing by the Weyl constants between rounds. So a set may be cut into batches anywhere, or move from CPU to
CUDA, and each image still meets the same noise; `torch.Generator` streams promise neither.
"""

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


Words = tuple[Tensor, Tensor, Tensor, Tensor]
"""Four 32-bit words, each held in an int64 tensor; the shapes broadcast."""


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10 of every counter. The products wrap in int64, whose bits are those of the unsigned product."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((second >> 32) & _WORD) ^ c1 ^ k0,
            second & _WORD,
            ((first >> 32) & _WORD) ^ c3 ^ k1,
            first & _WORD,
        )
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


@dataclass(frozen=True)
class Draws:
    """The random numbers of images `first … first + count − 1` of a set.

    `stream` separates the corruptions and severities, the `purpose` of a draw separates the draws within one.
    """

    seed: int
    stream: str
    first: int
    count: int
    device: torch.device

    def uniform(self, purpose: str, *shape: int) -> Tensor:
        """Uniform in the open interval (0, 1), float64 `[count, *shape]`."""
        size = math.prod(shape)
        positions = torch.arange(-(-size // 4), device=self.device)
        images = torch.arange(self.first, self.first + self.count, device=self.device)[:, None]
        what, where = (torch.tensor(zlib.crc32(name.encode()), device=self.device) for name in (purpose, self.stream))
        words = philox((positions, images, what, where), (self.seed & _WORD, self.seed >> 32))
        bits = torch.stack(words, dim=-1).flatten(1)[:, :size]
        return ((bits.double() + 0.5) / 2**32).reshape(self.count, *shape)

    def normal(self, purpose: str, *shape: int) -> Tensor:
        """Standard normal, float64 `[count, *shape]`, by inversion: √2 · erf⁻¹(2u − 1)."""
        return math.sqrt(2) * torch.erfinv(2 * self.uniform(purpose, *shape) - 1)

    def between(self, low: float, high: float, purpose: str, *shape: int) -> Tensor:
        """Uniform in (low, high), float64 `[count, *shape]`."""
        return low + (high - low) * self.uniform(purpose, *shape)
