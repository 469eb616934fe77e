"""The constants of every corruption, one tuple per severity 1 … 5.

Each tuple is what the function of that name takes after the images (and the draws). Lengths are in pixels and do not
scale with the image: small images have CIFAR-10-C's constants, large ones ImageNet-C's.
"""

from collections.abc import Mapping

Levels = tuple[tuple[float, ...], ...]


def _single(*values: float) -> Levels:
    return tuple((value,) for value in values)


def _scaled(side: int, *levels: tuple[float, float, float]) -> Levels:
    return tuple(tuple(side * value for value in level) for level in levels)


CIFAR: Mapping[str, Levels] = {
    "gaussian_noise": _single(0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": _single(500, 250, 100, 75, 50),
    "impulse_noise": _single(0.01, 0.02, 0.03, 0.05, 0.07),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((7, 0.01), (12, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": _single(0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": _single(0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": _scaled(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "pixelate": _single(0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": _single(80, 65, 58, 50, 40),
    "speckle_noise": _single(0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": _single(0.4, 0.6, 0.7, 0.8, 1),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}

IMAGENET: Mapping[str, Levels] = {
    "gaussian_noise": _single(0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": _single(60, 25, 12, 5, 3),
    "impulse_noise": _single(0.03, 0.06, 0.09, 0.17, 0.27),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": _single(0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": _single(0.4, 0.3, 0.2, 0.1, 0.05),
    # 244, where 224 was meant, is what the published data have.
    "elastic_transform": _scaled(
        244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
    ),
    "pixelate": _single(0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": _single(25, 18, 15, 10, 7),
    "speckle_noise": _single(0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": _single(1, 2, 3, 4, 6),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}

# CIFAR-10-C-bar's severities, on its scale from 0 to 10; lengths scale with the image.
BAR: Mapping[str, Levels] = {
    "blue_noise_sample": _single(0.7, 1.4, 2.1, 3.5, 4.2),
    "brownish_noise": _single(2.5, 4, 5.5, 6.5, 7),
    "checkerboard_cutout": _single(1, 2, 3, 4, 5),
    "inverse_sparkles": _single(1, 1.5, 2.5, 4.5, 5),
    "pinch_and_twirl": _single(5.5, 6, 6.5, 8.5, 10),
    "ripple": _single(5.5, 6, 6.5, 7.5, 8),
    "circular_motion_blur": _single(2.8, 3.6, 4.4, 5.2, 6),
    "lines": _single(0.5, 1, 1.5, 2, 2.5),
    "sparkles": _single(0.7, 3.5, 5.6, 6.3, 7),
    "transverse_chromatic_aberration": _single(1, 2, 5, 9, 10),
}
