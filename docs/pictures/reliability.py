"""Draw the reliability diagrams of the demo's network, before and after: python docs/pictures/reliability.py"""

from pathlib import Path

import torch

import lates
from lates.demo import load_network, load_splits

PICTURE = Path(__file__).with_suffix(".svg")
SIDE, TOP, LEFT, STEP = 170, 40, 40, 220
TITLE = (
    "Two reliability diagrams of the demo's network on 4,000 test images: accuracy against confidence in 15 bins. The network "
    "alone lies below the diagonal, too sure of itself; calibrated, it follows the diagonal."
)


def main() -> None:
    model, splits = load_network(), load_splits()
    calibrated = lates.calibrate(model, train=splits.train.batches, holdout=splits.holdout.batches)
    with torch.no_grad():
        logits = {"the network alone": model(splits.test.images), "calibrated": calibrated(splits.test.images)}
    diagrams = {name: lates.metrics.reliability(own, splits.test.labels) for name, own in logits.items()}
    PICTURE.write_text(drawn(diagrams), "utf-8")


def drawn(diagrams: dict[str, lates.metrics.Reliability]) -> str:
    panels = (_panel(name, own, LEFT + STEP * place) for place, (name, own) in enumerate(diagrams.items()))
    head = (
        '<svg viewBox="0 0 440 262" role="img" aria-labelledby="reliability-title" xmlns="http://www.w3.org/2000/svg">'
    )
    return "\n".join([head, f'<title id="reliability-title">{TITLE}</title>', *panels, "</svg>\n"])


def _panel(name: str, diagram: lates.metrics.Reliability, left: int) -> str:
    """A square with its diagonal; each bin a dot as large as its share, and its gap to the diagonal as a bar."""
    bottom = TOP + SIDE
    parts = [
        f'<text class="strong" x="{left + SIDE / 2:g}" y="22" text-anchor="middle">{name}</text>',
        f'<path class="axis" d="M{left} {TOP}h{SIDE}v{SIDE}h-{SIDE}zM{left} {bottom}l{SIDE}-{SIDE}"/>',
        f'<text class="small dim" x="{left + SIDE / 2:g}" y="{bottom + 34}" text-anchor="middle">confidence</text>',
        f'<text class="small dim" x="{left}" y="{bottom + 17}" text-anchor="middle">0</text>',
        f'<text class="small dim" x="{left + SIDE}" y="{bottom + 17}" text-anchor="middle">1</text>',
        f'<text class="small dim" x="{left - 8}" y="{TOP + 5}" text-anchor="end">1</text>',
        f'<text class="small dim" transform="translate({left - 12} {TOP + SIDE / 2:g}) rotate(-90)" '
        'text-anchor="middle">accuracy</text>',
    ]
    for count, sure, right in zip(diagram.counts, diagram.confidence, diagram.accuracy, strict=True):
        if count:
            x, y, level = left + SIDE * float(sure), bottom - SIDE * float(right), bottom - SIDE * float(sure)
            radius = 2 + 10 * float(count / diagram.counts.sum()) ** 0.5
            parts.append(f'<path class="gap" d="M{x:.1f} {y:.1f}V{level:.1f}"/>')
            parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')
    return "\n".join(parts)


if __name__ == "__main__":
    main()
