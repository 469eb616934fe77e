"""Small trees of image files in the layouts of data sets."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image


def write_tiny_imagenet(root: Path, synsets: Sequence[str], train: int, test: int) -> None:
    """So many images of each synset, all of one colour: green is the place of the synset's name, red counts images."""
    for name in synsets:
        (root / "train" / name / "images").mkdir(parents=True)
        for number in range(train):
            _save(root / "train" / name / "images" / f"{name}_{number}.JPEG", (100 + number, sorted(synsets).index(name)))
    (root / "val" / "images").mkdir(parents=True)
    rows = [(f"val_{number}.JPEG", name) for number, name in enumerate(list(synsets) * test)]
    for number, (file, name) in enumerate(rows):
        _save(root / "val" / "images" / file, (200 + number // len(synsets), sorted(synsets).index(name)))
    lines = (f"{file}\t{name}\t0\t0\t63\t63\n" for file, name in rows)
    (root / "val" / "val_annotations.txt").write_text("".join(lines))


def _save(path: Path, colour: tuple[int, int]) -> None:
    Image.new("RGB", (64, 64), (*colour, 0)).save(path, format="PNG")
