"""The network as a picture, in coordinates: boxes one below the other, and a ribbon from each voting box to the prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lates.report.numbers import Member

Row = dict[str, Any]

BOX, SILENT, GAP = 24.0, 16.0, 8.0  # heights of a voting box, of one without a vote, and between boxes, in pixels
VOTES = 150.0  # the height of all ribbons of a network together, on average over networks
LEFT, RIGHT, TARGET, END = (
    0.0,
    0.40,
    0.90,
    1.0,
)  # where boxes begin and end, where ribbons and where the prediction ends
STEPS = 24


@dataclass(frozen=True)
class Picture:
    """Rows for drawing, x from 0 to 1 and y in pixels from the top."""

    height: float
    chain: list[Row]
    ribbons: list[Row]
    boxes: list[Row]
    ends: list[Row]
    labels: list[Row]


def picture_rows(members: Sequence[Member], networks: int = 1) -> Picture:
    """One network's members, of `networks` whose contributions sum up to 1.

    Boxes grow with their contribution, so that every ribbon leaves its box at full width; the prediction is as high as all
    ribbons together.
    """
    widths = [VOTES * networks * member.contribution for member in members]
    heights = [max(BOX, width) if width else SILENT for width in widths]
    height = SILENT + GAP + sum(heights) + GAP * (len(heights) - 1)
    middle = (LEFT + RIGHT) / 2
    chain: list[Row] = [{"x": middle, "y": 0.0, "y2": height}]
    boxes: list[Row] = []
    ends = [_box("input", "input", 0.0, SILENT, LEFT, RIGHT)]
    labels: list[Row] = [_label("input", "off", "input", middle, SILENT / 2)]
    ribbons: list[Row] = []
    end = max(sum(widths), BOX)
    first = landing = (height - end) / 2
    top = SILENT + GAP
    for member, width, own in zip(members, widths, heights, strict=True):
        kind = "silent" if not width else "head" if member.is_head else "probe"
        numbers = {"weight": member.weight, "contribution": member.contribution}
        centre = top + own / 2
        boxes.append({**_box(member.name, kind, top, top + own, LEFT, RIGHT), **numbers})
        labels.append(_label(member.name, "on" if width else "off", member.name, middle, centre))
        if width:
            labels.append(_label(member.name, "share", _percent(member.contribution), RIGHT, centre))
            for step in range(STEPS + 1):
                along = step / STEPS
                bend = along**2 * (3 - 2 * along)
                upper = (centre - width / 2) * (1 - bend) + landing * bend
                row = {"x": RIGHT + (TARGET - RIGHT) * along, "y": upper, "y2": upper + width}
                ribbons.append({"name": member.name, "kind": kind, **row, **numbers})
            landing += width
        top += own + GAP
    ends.append(_box("prediction", "input", first, first + end, TARGET, END))
    labels.append(_label("prediction", "end", "prediction", (TARGET + END) / 2, first + end / 2))
    return Picture(height, chain, ribbons, boxes, ends, labels)


def _box(name: str, kind: str, top: float, bottom: float, left: float, right: float) -> Row:
    return {"name": name, "kind": kind, "x": left, "x2": right, "y": top, "y2": bottom}


def _label(name: str, role: str, text: str, x: float, y: float) -> Row:
    return {"name": name, "role": role, "text": text, "x": x, "y": y}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "<1 %"
