"""The measurement of views for text and tables: its shifts, its predictions, and its rule."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import lates
from experiments.data.files import DamagedError
from experiments.text_and_tables import tables, text
from experiments.text_and_tables.__main__ import keep
from experiments.text_and_tables.measuring import HOLDOUT, LABELS, NETWORK, NO_VIEWS, TEMPERATURE, TEST, measure
from experiments.text_and_tables.problem import CLEAN, Problem
from experiments.text_and_tables.rule import Outcome, Predictions, as_tables

RESULTS = Path(__file__).parents[2] / "results"
SENTENCE = ["what", "county", "is", "modesto", "in", "california", "today"]


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Tiny: rows whose first column tells the class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (900,), generator=generator)
    rows = torch.randn(900, 5, generator=generator) + labels[:, None] * torch.tensor([2.0, 1, 0, 0, 0])
    parts = [(rows[part], labels[part]) for part in torch.arange(900).split(300)]
    return Problem(
        model=tables.train_network(*parts[0], seed=0),
        train=tables.batches(*parts[0]),
        holdout=tables.shifted_loaders(*parts[1]),
        test=tables.shifted_loaders(*parts[2]),
        views={"swap .15": lates.views.swap},
        budget=1.0,
    )


def test_predictions_are_those_of_calibrate(problem: Problem) -> None:
    found = measure(problem, seed=3)
    options = {"train": problem.train, "holdout": problem.holdout[CLEAN], "budget": 1.0, "seed": 3, "progress": False}
    for method, views in {NO_VIEWS: None, "swap .15": lates.views.swap}.items():
        calibrated = lates.calibrate(problem.model, **options, views=views)  # pyright: ignore[reportArgumentType]
        for name, loader in problem.test.items():
            expected = torch.cat([calibrated(rows).log_softmax(1) for rows, _ in loader]).detach().numpy()
            np.testing.assert_allclose(found[f"{TEST}|{method}|{name}"], expected, atol=1e-4)
    clean = torch.cat([rows for rows, _ in problem.holdout[CLEAN]])
    half = [(clean[0::2], torch.from_numpy(found[f"{HOLDOUT}|{LABELS}|{CLEAN}"])[0::2])]
    temperature = lates.calibrate(problem.model, holdout=half, blocks=[], progress=False)
    expected = temperature(clean[1::2]).log_softmax(1).detach().numpy()
    np.testing.assert_allclose(found[f"{HOLDOUT}|{TEMPERATURE}|{CLEAN}"][1::2], expected, atol=1e-4)


def predictions(better: float, under_shift: float, seed: int) -> Predictions:
    """Of two classes: the NLL of "swap .15" is that much lower than without views, clean and under held-back shift."""
    source = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for split in (HOLDOUT, TEST):
        for name in tables.FAMILIES.sets:
            losses = source.uniform(0.6, 1.0, size=400)
            gain = better if name == CLEAN else under_shift
            found[f"{split}|{LABELS}|{name}"] = np.zeros(400, dtype=np.int64)
            for method, lower in {
                NETWORK: 0,
                TEMPERATURE: 0,
                NO_VIEWS: 0,
                "swap .15": gain,
                "swap .3": gain / 2,
            }.items():
                own = losses - lower + source.normal(scale=0.01, size=400)
                found[f"{split}|{method}|{name}"] = np.stack([-own, np.log1p(-np.exp(-own))], 1)
    return found


@pytest.mark.parametrize(
    ("clean", "shifted", "chosen"),
    [(0.0, 0.1, "swap .15"), (0.1, 0.1, "swap .15"), (0.1, 0.0, None), (-0.1, 0.3, None)],
)
def test_auto_takes_a_view_that_helps_under_shift_and_costs_nothing_clean(
    clean: float, shifted: float, chosen: str | None
) -> None:
    outcome = Outcome([predictions(clean, shifted, seed) for seed in range(3)], tables.FAMILIES)
    assert outcome.choose() == chosen
    assert set(outcome.strengths()) == {"swap"}
    difference, error = outcome.differences("swap .15")["held back"]
    assert difference == pytest.approx(-shifted, abs=4 * error + 1e-3)


def test_measured_numbers_are_means_over_strengths_and_seeds() -> None:
    seeds = [predictions(0, 0.1, seed) for seed in range(2)]
    mean, deviation = Outcome(seeds, tables.FAMILIES).measured(TEST)[NO_VIEWS]["drift"]["nll"]
    by_seed = [np.mean([-seed[f"{TEST}|{NO_VIEWS}|drift {strength}"][:, 0] for strength in (1, 2)]) for seed in seeds]
    assert mean == pytest.approx(np.mean(by_seed))
    assert deviation == pytest.approx(np.std(by_seed, ddof=1))


@pytest.mark.parametrize("name", ["magic", "trec"])
def test_the_page_shows_the_tables_of_the_results(name: str) -> None:
    outcome = json.loads((RESULTS / "text_and_tables" / f"{name}.json").read_text("utf-8"))
    assert as_tables(outcome) in (RESULTS / "text-and-tables.md").read_text("utf-8")


def test_predictions_are_computed_once_and_damaged_ones_named(tmp_path: Path) -> None:
    path, values, computed = tmp_path / "new" / "kept.safetensors", np.eye(3, dtype=np.float32), []

    def compute() -> Predictions:
        computed.append(path.exists())
        return {"test|network|clean": values}

    for _ in range(2):
        np.testing.assert_array_equal(keep(path, compute)["test|network|clean"], values)
    assert computed == [False]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedError, match=r"kept\.safetensors is damaged .*Remove it"):
        keep(path, compute)


def test_missing_entries_are_the_mean_and_as_many_as_stated() -> None:
    rows = 3 + torch.rand(50, 10)
    loaders = tables.shifted_loaders(rows, torch.zeros(50).long())
    for strength in (1, 2):
        changed = torch.cat([batch for batch, _ in loaders[f"missing {strength}"]])
        assert bool(((changed == 0).sum(1) == strength).all())


def test_words_are_misspelt_moved_and_dropped() -> None:
    source = random.Random(0)
    misspelt = text.misspell(SENTENCE, 1.0, source)
    assert [len(word) > 3 for word in SENTENCE] == [a != b for a, b in zip(SENTENCE, misspelt, strict=True)]
    assert all(a[0] == b[0] for a, b in zip(SENTENCE, misspelt, strict=True))
    assert sorted(text.reorder(SENTENCE, 0.5, source)) == sorted(SENTENCE)
    assert text.reorder(SENTENCE, 0.5, source) != SENTENCE
    assert text.drop(SENTENCE, 1.0, source) == SENTENCE[:1]


def test_questions_are_read_without_repetitions(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text("0,what is it\n1,who , then\n0,what is it\n", "utf-8")
    assert text.read_questions(file) == [("what is it", 0), ("who , then", 1)]
