"""The recipes for ImageNet and Tiny-ImageNet, end to end on small trees of files: decode, train, calibrate, corrupt."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from experiments.data.datasets import LARGE
from experiments.recipes import RECIPES
from experiments.runner.cells import Folders, run_cells
from experiments.runner.results import find_results
from experiments.training.hyperparameters import PAPER_IMAGENET
from tests.experiments.data.image_files import write_tiny_imagenet
from tests.experiments.sample import sample_data

CLASSES, TRAIN, TEST = 3, 5, 2
METHODS = ("network", "temperature", "lates_shift_1", "lates_paper")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Real images of three classes, enlarged to the sizes and shapes that cameras give; plain ones for Tiny-ImageNet."""
    data = sample_data().test
    for label in range(CLASSES):
        images = data.images[data.labels == label][: TRAIN + TEST]
        for place, image in enumerate(images):
            folder = tmp_path / "data" / ("train" if place < TRAIN else "val") / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(image.permute(1, 2, 0).numpy())
            picture.resize((256 + 16 * place, 288)).save(folder / f"{place}.jpg", quality=90)
    write_tiny_imagenet(tmp_path / "data" / "tiny-imagenet-200", [f"n{label}" for label in range(CLASSES)], TRAIN, TEST)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_recipe_runs_from_files_to_results(name: str, tree: Path) -> None:
    recipe = replace(
        RECIPES[name],
        networks=("resnet18",),
        seeds=(0,),
        fractions=((0.6, 0.4),),
        training=replace(PAPER_IMAGENET, epochs=1, batch=4, warmup_epochs=0, rate=0.01),
        corruptions=("elastic_transform",),
        severities=(3,),
        probe_images={name: 2},
        methods=METHODS,
    )
    folders = Folders(tree / "data", tree / "runs", tree / "results")
    outcome = run_cells(recipe, recipe.cells(), folders, "cpu")
    assert len(outcome.done) == 1
    (results,) = find_results(folders.results)
    assert results.facts["rows"] == {"train": CLASSES * 2, "holdout": CLASSES * 2, "test": CLASSES * TEST}
    assert list(results.scores) == [(method, name) for method in METHODS for name in ("clean", "elastic_transform-3")]
    assert len(results.facts["probe_accuracy"]) == 8
    assert results.facts["parameters"] == 11_178_051
