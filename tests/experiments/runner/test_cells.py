"""Runners do each cell once and go on after any interruption."""

import hashlib
import itertools
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from experiments.data.archives import DataError
from experiments.data.datasets import FolderSet, load_folder
from experiments.evaluation.environment import require_commit
from experiments.evaluation.evaluate import evaluate_network
from experiments.evaluation.kept_logits import load_logits
from experiments.evaluation.prepared import read_logits
from experiments.recipes import RECIPES
from experiments.runner.cache import DataCache
from experiments.runner.cells import Outcome, choose_cells, read_status, run_cells
from experiments.runner.claims import claimed, is_claimed
from experiments.runner.results import conditions_of, find_results, is_finished, results_path
from experiments.training.checkpoints import RunFolder, save_tensors
from experiments.training.loop import check_device
from experiments.training.networks import build_network
from tests.experiments.data.image_files import write_tiny_imagenet
from tests.experiments.runner.tiny_grid import folders_in, numbers, run_tiny
from tests.experiments.sample import SHORT, sample_data, tiny_recipe


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("undisturbed")
    run_tiny(root)
    return root


# Choosing


def test_cells_are_chosen_by_seed_and_place() -> None:
    recipe = RECIPES["in_distribution"]
    assert len(choose_cells(recipe, seeds=[0])) == 10
    only = choose_cells(recipe, only=["resnet18/cifar100", "vgg16/cifar10"], seeds=[3])
    assert [(cell.network, cell.dataset, cell.seed) for cell in only] == [
        ("vgg16", "cifar10", 3),
        ("resnet18", "cifar100", 3),
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--device cuda: torch .* sees no GPU here\. Use --device cpu"):
        run_cells(tiny_recipe(), tiny_recipe().cells(), folders_in(tmp_path), "cuda")
    assert not list(tmp_path.iterdir())
    assert check_device("cpu") == torch.device("cpu")


def test_a_gpu_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert check_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match=r"--device cuda:2: the last GPU here is cuda:1\."):
        check_device("cuda:2")


def test_what_a_corruption_lacks_is_said_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATES_FROST", str(tmp_path / "nothing"))
    recipe = replace(tiny_recipe(), corruptions=("contrast", "frost"))
    with pytest.raises(DataError, match=r"smoke measures under frost\. No frost1.*pip install --no-deps imagecorr"):
        run_cells(recipe, recipe.cells(), folders_in(tmp_path), "cpu")
    assert not (tmp_path / "runs").exists()


# Doing


def test_a_cell_is_done_once_and_then_skipped(undisturbed: Path) -> None:
    (cell,) = tiny_recipe().cells()
    assert is_finished(undisturbed / "results", cell, conditions_of(tiny_recipe(), cell))
    before = numbers(undisturbed)
    times = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    outcome = run_tiny(undisturbed)
    assert outcome == Outcome((), (cell,), (), ())
    assert numbers(undisturbed) == before
    assert times == {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}


def test_released_weights_take_the_place_of_training(tmp_path: Path) -> None:
    network = build_network("resnet20", 10)
    recipe = replace(
        tiny_recipe(),
        networks=("resnet20",),
        fractions=((1.0, 0.0),),
        released={"resnet20/cifar10_600": "0" * 64},
        methods=("sms",),
        natural={"cifar10_600": {"cat": ("n2",), "dog": ("n1",)}},
    )
    (cell,) = recipe.cells()
    folders = replace(folders_in(tmp_path), data=tmp_path)
    file = folders.runs / cell.training / "released.th"
    file.parent.mkdir(parents=True)
    torch.save(network.state_dict(), file)
    (reason,) = run_cells(recipe, [cell], folders, "cpu").failed.values()
    assert "holds other weights" in reason
    recipe = replace(recipe, released={"resnet20/cifar10_600": hashlib.sha256(file.read_bytes()).hexdigest()})
    (reason,) = run_cells(recipe, [cell], folders, "cpu").failed.values()
    assert "tiny-imagenet-200.zip" in reason
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200", ["n1", "n2"], train=3, test=1)
    assert run_cells(recipe, [cell], folders, "cpu").done == (cell,)
    (results,) = find_results(folders.results)
    assert results.facts["recipe"]["training"] == {"released": recipe.released["resnet20/cifar10_600"]}
    rows = results.facts["rows"]
    assert rows["holdout"] == rows["test"] == len(sample_data().test) // 2
    assert [*results.scores][-2:] == [("sms", "contrast-5"), ("sms", "natural")]
    assert results.blocks["sms", "natural"].shape == (3, 6)
    assert results.facts["recipe"]["natural"] == {"cat": ["n2"], "dog": ["n1"]}


def test_results_say_how_they_were_made(undisturbed: Path) -> None:
    (results,) = find_results(undisturbed / "results")
    assert results.facts["recipe"] == {
        "training": json.loads(json.dumps(asdict(replace(SHORT, epochs=2)))),
        "corruptions": ["contrast"],
        "severities": [1, 3, 5],
        "probe_images": None,
        "natural": None,
        "samples": None,
    }
    assert {"torch", "scipy", "pillow", "cuda"} <= results.facts["versions"].keys()
    (dropped, _) = RECIPES["mc_dropout"].cells([0])[:2]
    assert conditions_of(RECIPES["mc_dropout"], dropped)["samples"] == 10


@pytest.mark.parametrize(
    "change",
    [
        {"training": replace(SHORT, epochs=3)},
        {"corruptions": ("contrast", "fog")},
        {"probe_images": {"cifar10_600": 5}},
    ],
)
def test_results_of_another_recipe_are_neither_taken_nor_replaced(undisturbed: Path, change: dict[str, Any]) -> None:
    recipe = replace(tiny_recipe((0, 1)), **change)
    first, second = recipe.cells()
    before = numbers(undisturbed)
    for cells in ([first, second], [second]):
        with pytest.raises(ValueError, match=rf"s0.*\.json was made by another recipe: .*{next(iter(change))} .*is now"):
            run_cells(recipe, cells, folders_in(undisturbed), "cpu")
    assert numbers(undisturbed) == before
    assert read_status(recipe, first, folders_in(undisturbed)).startswith("measured by another recipe")


def test_results_cut_in_half_are_done_again(undisturbed: Path) -> None:
    (cell,) = tiny_recipe().cells()
    before = numbers(undisturbed)
    path = results_path(undisturbed / "results", cell)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert run_tiny(undisturbed).done == (cell,)
    assert numbers(undisturbed) == before


def test_a_run_out_of_time_stops_in_good_order_and_goes_on(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that ticks whenever it is read, so that each life ends at another moment, the same on every machine."""
    (cell,) = tiny_recipe().cells()
    assert run_tiny(tmp_path, max_seconds=0).left == (cell,)
    assert not (tmp_path / "results").exists()
    monkeypatch.setattr("experiments.runner.cells.STOPPING_SECONDS", 0.0)
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)
    last_stages: list[str] = []
    for ticks in (5, 10, 14, *range(20, 200)):
        stages: list[str] = []

        def note(_: str, stage: str, *__: int, stages: list[str] = stages) -> None:
            stages.append(stage)

        outcome = run_tiny(tmp_path, max_seconds=ticks, report=note)
        last_stages.append(stages[-1])
        if outcome.done:
            break
        assert outcome.left == (cell,)
        assert not find_results(tmp_path / "results")
    assert {"training", "fitting", "evaluating"} <= set(last_stages[:-1]), last_stages
    assert last_stages[-1] == "evaluating"
    assert numbers(tmp_path) == numbers(undisturbed)


class StopError(Exception):
    pass


def test_an_evaluation_goes_on_after_the_sets_that_are_measured(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = tiny_recipe().cells()

    def stop(_: str, stage: str, done: int, steps: int) -> None:
        if (stage, done) == ("evaluating", 3):
            raise StopError

    with pytest.raises(StopError):
        run_tiny(tmp_path, report=stop)
    assert read_status(tiny_recipe(), cell, folders_in(tmp_path)) == "trained 100%, 2 test sets measured"
    damaged = tmp_path / "runs" / cell.training / "measured-smoke" / "clean.json"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    heard: list[int] = []
    run_tiny(tmp_path, report=lambda _, stage, done, __: heard.append(done) if stage == "evaluating" else None)
    assert heard == [2, 3, 4], "one is there"
    assert numbers(tmp_path) == numbers(undisturbed)
    assert not damaged.parent.exists()


def test_networks_and_logits_are_kept_on_request(tmp_path: Path, undisturbed: Path) -> None:
    (cell,) = tiny_recipe().cells()
    run_tiny(tmp_path, keep=True)
    folder = tmp_path / "runs" / cell.training
    network = build_network("tiny_vgg", 10).eval()
    (folder / "network.safetensors").unlink()
    assert RunFolder(folder).load_finished(network) is not None
    kept = load_logits(folder / "logits-smoke.npz")
    assert list(kept) == ["holdout", "clean", "contrast-3"]
    logits, labels = kept["clean"]
    assert torch.equal(labels, sample_data().test.labels)
    expected = read_logits(network, sample_data().test)
    torch.testing.assert_close(logits, expected, rtol=1e-2, atol=1e-2)
    for path in (tmp_path / "results" / "smoke").iterdir():
        path.unlink()
    assert run_tiny(tmp_path).done == (cell,)
    (results,) = find_results(tmp_path / "results")
    assert results.facts["weights"]["file"] == "network-half.safetensors"
    (whole,) = find_results(undisturbed / "results")
    assert whole.facts["weights"]["file"] == "network.safetensors"
    assert whole.facts["weights"]["sha256"] != results.facts["weights"]["sha256"]


def test_a_mistake_of_a_library_ends_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tiny_recipe((0, 1)).cells()

    def fail_once(network: torch.nn.Module, *arguments: Any, seed: int, **options: Any) -> Any:
        if seed == 0:
            raise RuntimeError("Triton could not compile\nmuch more")
        return evaluate_network(network, *arguments, seed=seed, **options)

    monkeypatch.setattr("experiments.runner.cells.evaluate_network", fail_once)
    outcome = run_tiny(tmp_path, seeds=(0, 1))
    assert outcome.done == (second,)
    assert outcome.failed == {first: "RuntimeError: Triton could not compile. LATES_DEBUG=1 shows where."}


def test_results_of_a_gpu_need_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    require_commit(torch.device("cuda"))
    monkeypatch.setenv("PATH", "")
    require_commit(torch.device("cpu"))
    with pytest.raises(ValueError, match=r"no repository, .* Set LATES_COMMIT"):
        require_commit(torch.device("cuda"))
    monkeypatch.setenv("LATES_COMMIT", "abc")
    require_commit(torch.device("cuda"))


def test_progress_counts_unfinished_cells(tmp_path: Path, undisturbed: Path) -> None:
    results = tmp_path / "results" / "smoke"
    results.mkdir(parents=True)
    for path in (undisturbed / "results" / "smoke").iterdir():
        (results / path.name).write_bytes(path.read_bytes())
    heard: list[tuple[str, str, int, int]] = []
    outcome = run_tiny(tmp_path, seeds=(0, 1), report=lambda *progress: heard.append(progress))
    assert [cell.seed for cell in outcome.skipped] == [0]
    assert [cell.seed for cell in outcome.done] == [1]
    assert {cell for cell, *_ in heard} == {f"[1/1] {outcome.done[0].training}"}
    assert [*dict.fromkeys(stage for _, stage, *_ in heard)] == ["loading", "training", "fitting", "evaluating"]
    assert heard[-1][2:] == (4, 4)


def test_cells_held_by_another_runner_are_left_to_it(tmp_path: Path) -> None:
    first, second = tiny_recipe((0, 1)).cells()
    with claimed(tmp_path / "runs" / first.training) as mine:
        assert mine
        outcome = run_tiny(tmp_path, seeds=(0, 1))
    assert outcome == Outcome((second,), (), (first,), ())


def test_a_cell_that_fails_leaves_the_others_to_be_done(tmp_path: Path) -> None:
    """Its folder holds a network that was trained in another way."""
    first, second = tiny_recipe((0, 1)).cells()
    other = tmp_path / "runs" / first.training / "network.safetensors"
    other.parent.mkdir(parents=True)
    save_tensors(other, {"weight": torch.zeros(1)}, {"recipe": "another"})
    stages: list[str] = []
    outcome = run_tiny(tmp_path, seeds=(0, 1), report=lambda _, stage, *__: stages.append(stage))
    assert (outcome.done, outcome.left, [*outcome.failed]) == ((second,), (), [first])
    assert "network.safetensors is of another run: its recipe is another" in outcome.failed[first]
    assert f"failed: {outcome.failed[first]}" in stages
    assert [results.cell for results in find_results(tmp_path / "results")] == [second]
    assert not is_claimed(tmp_path / "runs" / first.training)


def test_status_says_what_is_done_running_and_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = tiny_recipe().cells()
    folders = folders_in(tmp_path)
    assert read_status(tiny_recipe(), cell, folders) == "trained 0%"
    with claimed(folders.runs / cell.training):
        assert read_status(tiny_recipe(), cell, folders) == "trained 0%, running"
    monkeypatch.setattr("experiments.runner.cells.STOPPING_SECONDS", -1.0)
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)
    run_tiny(tmp_path, max_seconds=8)
    assert re.fullmatch(r"trained [1-9]\d?%", read_status(tiny_recipe(), cell, folders))
    (folders.runs / cell.training / "checkpoint.safetensors").write_bytes(b"cut")
    assert read_status(tiny_recipe(), cell, folders) == "trained 0%"


def test_a_tree_of_files_becomes_resident(tmp_path: Path) -> None:
    """ImageNet's way in: decoded by workers, all of it then on the device; and few images of each class for the probes."""
    for label, shade in (("cat", 60), ("dog", 200)):
        (tmp_path / label).mkdir()
        for number in range(3):
            Image.new("RGB", (64, 64), (shade, number, 0)).save(tmp_path / label / f"{number}.png")
    files = load_folder(tmp_path, size=32)
    cache = DataCache(replace(tiny_recipe(), probe_images={"cifar10_600": 2}), None, torch.device("cpu"))
    resident = cache.resident(files)
    assert isinstance(files, FolderSet)
    assert resident.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert resident.images[:, :2, 0, 0].tolist() == [[60, 0], [60, 1], [60, 2], [200, 0], [200, 1], [200, 2]]
    assert cache.fitting_part("cifar10_600", files).labels.tolist() == [0, 0, 1, 1]
    assert cache.fitting_part("cifar10_600", sample_data().train).labels.bincount().tolist() == [2] * 10
