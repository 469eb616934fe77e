"""Logits that were saved some time ago: no network, no images, only arrays. Works on any classifier's logits.

Here the members are three "networks" of rising quality that see one truth through noise. Of a forest's or a boosted
tree's probabilities, the logarithms are logits: `np.log(probabilities.clip(1e-12))`.
"""

import tempfile
from pathlib import Path

import numpy as np

import lates

CLASSES, ROWS = 10, 8000


def save_logits(path: Path) -> None:
    random = np.random.default_rng(0)
    truth = 2 * random.normal(size=(ROWS, CLASSES))
    labels = (truth + random.gumbel(size=truth.shape)).argmax(axis=1)

    def seen_through(noise: float) -> np.ndarray:
        return 1.5 * truth + noise * random.normal(size=truth.shape)

    np.savez(path, labels=labels, early=seen_through(4.0), middle=seen_through(3.0), head=seen_through(2.0))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logits.npz"
        save_logits(path)
        with np.load(path) as arrays:
            members, labels = {name: arrays[name] for name in ("early", "middle", "head")}, arrays["labels"]

    fitted_on, tested_on = slice(0, 4000), slice(4000, ROWS)
    held = {name: logits[fitted_on] for name, logits in members.items()}
    test = {name: logits[tested_on] for name, logits in members.items()}
    scaling = lates.TemperatureScaling().fit(held["head"], labels[fitted_on])
    stack = lates.LogitStack().fit(held, labels[fitted_on])
    print(f"temperature {scaling.temperature_:.2f}")
    print("contributions", {name: round(share, 3) for name, share in stack.contributions_.items()}, "\n")

    calibrated = {
        "head alone": test["head"],
        "temperature": scaling.calibrated_logits(test["head"]),
        "stack": stack.calibrated_logits(test),
    }
    for name, logits in calibrated.items():
        measured = lates.metrics.summary(logits, labels[tested_on])
        print(f"{name:<12} nll {measured['nll']:.3f}  accuracy {measured['accuracy']:.3f}  ece {measured['ece']:.3f}")


if __name__ == "__main__":
    main()
