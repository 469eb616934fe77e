"""The demonstration: its images, network, training, shifts, and that its table says what `lates.metrics` says."""

import io
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.ndimage import gaussian_filter
from torch import Tensor

import lates
from lates.demo import (
    Comparison,
    Splits,
    compare,
    load_network,
    load_splits,
    same_weights,
    save_network,
    show,
    train_network,
)
from lates.demo.comparison import JITTERED, LATES, METRICS, NETWORK, TEMPERATURE, Measured
from lates.demo.shifts import BLUR, CONTRAST, NOISE, add_noise, blur, lower_contrast, shift_split
from lates.demo.table import explanation
from lates.metrics import Interval

SHIPPED_ACCURACY = 0.881
"""As the README states it."""
MARKED = ("better", "worse")


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits()


@pytest.fixture(scope="module")
def few(splits: Splits) -> Splits:
    return splits.shrink(10)


@pytest.fixture(scope="module")
def comparison(few: Splits) -> Comparison:
    return compare(load_network(), few, draws=20)


def printed(comparison: Comparison, width: int = 80, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(comparison, Console(file=stream, width=width))
    stream.seek(0)
    return stream.read()


def test_the_shipped_images_come_in_three_balanced_splits(splits: Splits) -> None:
    assert [len(split) for split in (splits.train, splits.holdout, splits.test)] == [6000, 2000, 4000]
    for split in (splits.train, splits.holdout, splits.test):
        assert split.images.shape == (len(split), 1, 28, 28)
        assert (split.images.min(), split.images.max()) == (0, 1)
        shares = torch.bincount(split.labels, minlength=10) / len(split)
        assert shares.shape == (10,)
        assert float((shares - 0.1).abs().max()) < 0.02
    batches = splits.test.batches
    assert torch.equal(torch.cat([labels for _, labels in batches]), splits.test.labels)


def test_the_licence_of_the_images_is_shipped_with_them() -> None:
    notice = files("lates").joinpath("data", "NOTICE").read_text(encoding="utf-8")
    assert "MIT License" in notice
    assert "2017 Zalando SE" in notice


def test_the_shipped_network_is_as_accurate_as_stated_and_overconfident(splits: Splits) -> None:
    network = load_network()
    with torch.inference_mode():
        logits = torch.cat([network(images) for images, _ in splits.test.batches])
    assert lates.metrics.accuracy(logits, splits.test.labels) == pytest.approx(SHIPPED_ACCURACY, abs=0.001)
    confidence = float(logits.softmax(1).amax(1).mean())
    assert confidence > SHIPPED_ACCURACY + 0.05
    assert len(files("lates").joinpath("data", "network.safetensors").read_bytes()) < 1_000_000


def test_training_learns_is_repeatable_and_leaves_no_trace(splits: Splits) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    steps: list[tuple[str, int, int | None]] = []
    part = splits.train.first(1280)
    network = train_network(part, epochs=4, threads=1, progress=lambda *step: steps.append(step))
    assert steps == [("training", done, 40) for done in range(1, 41)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    test = splits.test.first(1000)
    with torch.inference_mode():
        assert lates.metrics.accuracy(network(test.images), test.labels) > 0.5
    small = splits.train.first(256)
    first, again, other = (train_network(small, epochs=1, seed=seed, threads=1) for seed in (3, 3, 4))
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_training_refuses_too_little(splits: Splits) -> None:
    with pytest.raises(ValueError, match="epochs came as 0"):
        train_network(splits.train, epochs=0)
    with pytest.raises(ValueError, match="100 images"):
        train_network(splits.train.first(100))


def test_a_saved_network_loads_to_the_last_bit_and_leaves_nothing_beside_it(tmp_path: Path, splits: Splits) -> None:
    network = train_network(splits.train.first(128), epochs=1, threads=1)
    save_network(network, tmp_path / "network.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["network.safetensors"]
    loaded = load_network(tmp_path / "network.safetensors")
    assert same_weights(network, loaded)
    assert not loaded.training


def test_foreign_damaged_and_missing_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "network.safetensors"
    with pytest.raises(FileNotFoundError, match="lates demo --train"):
        load_network(path)
    path.write_bytes(files("lates").joinpath("data", "network.safetensors").read_bytes()[:1000])
    with pytest.raises(ValueError, match="does not hold the weights"):
        load_network(path)


def test_noise_has_its_deviation_stays_in_range_and_follows_its_seed() -> None:
    grey = torch.full((50, 1, 28, 28), 0.5)
    noisy = add_noise(grey, seed=1)
    assert float((noisy - grey).std()) == pytest.approx(NOISE, rel=0.02)
    assert torch.equal(noisy, add_noise(grey, seed=1))
    assert not torch.equal(noisy, add_noise(grey, seed=2))
    white = add_noise(torch.ones(5, 1, 28, 28))
    assert float(white.max()) == 1


def test_blur_agrees_with_scipy(splits: Splits) -> None:
    images = splits.test.images[:5]
    expected = [gaussian_filter(image.double().numpy(), BLUR, mode="nearest", truncate=3) for image in images[:, 0]]
    np.testing.assert_allclose(blur(images)[:, 0].numpy(), np.stack(expected), atol=1e-6)


def test_contrast_keeps_each_mean_and_scales_each_deviation(splits: Splits) -> None:
    images = splits.test.images[:20]
    changed = lower_contrast(images)
    torch.testing.assert_close(changed.mean((1, 2, 3)), images.mean((1, 2, 3)))
    torch.testing.assert_close(changed.std((1, 2, 3)), CONTRAST * images.std((1, 2, 3)))


def test_every_number_agrees_with_lates_metrics(few: Splits, comparison: Comparison) -> None:
    network = load_network()
    stacked = lates.calibrate(network, train=few.train.batches, holdout=few.holdout.batches, views=None)
    heated = lates.calibrate(network, holdout=few.holdout.batches, blocks=[])
    models = {NETWORK: network, TEMPERATURE: heated, LATES: stacked}
    test_sets = shift_split(few.test)
    assert list(comparison.measured) == list(test_sets)
    for name in ("as they are", "noise", "blur"):
        logits: dict[str, Tensor] = {}
        for method, model in models.items():
            with torch.inference_mode():
                logits[method] = torch.cat([model(images) for images, _ in test_sets[name].batches])
            summary = lates.metrics.summary(logits[method], few.test.labels)
            measured = comparison.measured[name][method]
            assert measured.values == pytest.approx({metric: summary[metric] for metric in METRICS}, abs=1e-6)
            assert measured.ece_floor == pytest.approx(summary["ece_floor"], abs=1e-6)
        differences = comparison.measured[name][LATES].against_temperature
        ours = lates.metrics.bootstrap(
            lates.metrics.nll, logits[LATES], few.test.labels, other=logits[TEMPERATURE], draws=20
        )
        assert differences["nll"].low == pytest.approx(ours.low, abs=1e-6)
        assert differences["nll"].high == pytest.approx(ours.high, abs=1e-6)
    assert comparison.calibrations[LATES].contributions == pytest.approx(stacked.contributions, abs=1e-6)
    added = comparison.calibrations[LATES].added_parameters
    assert added == stacked.added_parameters / sum(value.numel() for value in network.parameters())


def test_temperature_scaling_changes_no_prediction_and_only_lates_is_held_against_it(comparison: Comparison) -> None:
    for methods in comparison.measured.values():
        assert list(methods) == [NETWORK, TEMPERATURE, LATES, JITTERED]
        assert methods[TEMPERATURE].values["accuracy"] == methods[NETWORK].values["accuracy"]
        for method, measured in methods.items():
            expected = list(METRICS) if method in (LATES, JITTERED) else []
            assert list(measured.against_temperature) == expected
            for metric, interval in measured.against_temperature.items():
                gap = measured.values[metric] - methods[TEMPERATURE].values[metric]
                assert interval.value == pytest.approx(gap, abs=1e-9)
    assert comparison.tests == 40


@pytest.mark.parametrize(
    ("metric", "low", "high", "verdict"),
    [
        ("accuracy", 0.01, 0.03, "better"),
        ("accuracy", -0.03, -0.01, "worse"),
        ("auc", 0.01, 0.03, "better"),
        ("nll", 0.01, 0.03, "worse"),
        ("ece", -0.03, -0.01, "better"),
        ("brier", -0.01, 0.03, "equal"),
    ],
)
def test_a_verdict_needs_an_interval_without_zero_and_knows_which_way_is_better(
    metric: str, low: float, high: float, verdict: str
) -> None:
    measured = Measured({}, 0.0, {metric: Interval((low + high) / 2, low, high, 0.95, 200)})
    assert measured.verdict(metric) == verdict


def test_the_table_shows_every_number_with_its_mark_in_80_columns(comparison: Comparison) -> None:
    lines = printed(comparison).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "…" not in "\n".join(lines)
    marks = {"better": "*", "worse": "!", "equal": ""}
    rows = iter([line.split() for line in lines if line.startswith("  ")])
    for methods in comparison.measured.values():
        for method, measured in methods.items():
            cells = [f"{value:.4f}{marks[measured.verdict(metric)]}" for metric, value in measured.values.items()]
            cells.insert(2, f"{measured.ece_floor:.4f}")
            assert next(rows) == [*method.split(), *cells]


def test_the_text_below_the_table_breaks_its_lines_itself(comparison: Comparison) -> None:
    lines = explanation(comparison).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert set(lines) <= {line.rstrip() for line in printed(comparison).splitlines()}


def test_the_text_counts_the_marks_and_ends_with_code_that_can_be_copied(comparison: Comparison) -> None:
    text = printed(comparison)
    table = text[: text.index("* better")]
    better, worse = (comparison.count(LATES, verdict) + comparison.count(JITTERED, verdict) for verdict in MARKED)
    assert (table.count("*"), table.count("!")) == (better, worse)
    code = text[text.index("import lates") :]
    compile(code, "next steps", "exec")
    assert len(code.strip().splitlines()) == 3


def test_bars_grow_with_contributions_also_without_unicode(comparison: Comparison) -> None:
    half = {**dict.fromkeys(comparison.calibrations[LATES].contributions, 0.0), "layer1.0": 0.5, "head": 0.5}
    changed = replace(comparison.calibrations[LATES], contributions=half)
    plain = printed(replace(comparison, calibrations={LATES: changed, JITTERED: changed}), encoding="ascii")
    assert plain.isascii()
    votes = {line.split()[0]: line.count("#") for line in plain.splitlines() if line.startswith(("layer", "head"))}
    assert votes == {"layer1.0": 18, "layer1.1": 0, "layer2.0": 0, "layer2.1": 0, "layer3.0": 0, "head": 18}
