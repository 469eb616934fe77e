import json
import os
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import lates
from lates.cli.contents import read_contents
from lates.model.storage import FORMAT, KEY, read_calibration, write_calibration
from tests.conftest import Problem, calibrate


def forge(path: Path, change: Any = lambda metadata: None, **replaced: torch.Tensor) -> None:
    """Write the file again, with its right digest, with `change` applied to its metadata and tensors replaced."""
    tensors, metadata = read_calibration(path)
    change(metadata)
    write_calibration(path, {**tensors, **replaced}, metadata)


@pytest.mark.parametrize("budget", [None, 0.02], ids=["dense", "low rank, with a member dropped"])
def test_loading_gives_the_same_logits_to_the_last_bit(problem: Problem, tmp_path: Path, budget: float | None) -> None:
    calibrated = calibrate(problem, budget=budget)
    calibrated.save(tmp_path / "file")
    loaded = lates.load(str(tmp_path / "file"), problem.model)
    with torch.no_grad():
        assert torch.equal(loaded(problem.images), calibrated(problem.images))
    assert loaded.added_parameters == calibrated.added_parameters
    assert loaded.weights == calibrated.weights
    assert loaded.spread == calibrated.spread
    assert loaded.fit.numbers == calibrated.fit.numbers
    assert str(loaded) == str(calibrated)


def test_a_file_of_an_earlier_version_without_digest_and_accuracies_is_read(
    saved: Path, problem: Problem, calibrated: lates.CalibratedModel
) -> None:
    tensors, metadata = read_calibration(saved)
    metadata["voters"][0].pop("accuracies")
    save_file(tensors, saved, {KEY: json.dumps(metadata)})
    with pytest.raises(ValueError, match="by its digest"):
        lates.load(saved, problem.model)
    save_file(tensors, saved, {KEY: json.dumps({**metadata, "format": 2})})
    loaded = lates.load(saved, problem.model)
    assert loaded.holdout_accuracies == {}
    assert loaded.weights == calibrated.weights


@pytest.mark.parametrize("kind", ["mc", "ensemble"])
def test_means_of_several_draws_are_saved_with_their_seed(
    problem: Problem, ensemble: list[nn.Module], tmp_path: Path, kind: str
) -> None:
    model = lates.mc_dropout(problem.model, samples=3) if kind == "mc" else ensemble
    calibrated = lates.calibrate(
        model, train=problem.train, holdout=problem.holdout, blocks=1, views=None, seed=11, progress=False
    )
    calibrated.save(tmp_path / "mean")
    loaded = lates.load(tmp_path / "mean", model)
    with torch.no_grad():
        assert torch.equal(loaded(problem.images[:50]), calibrated(problem.images[:50]))
    with pytest.raises(ValueError, match=r"calibrates \d network\(s\) with \d sample\(s\) each; this model has 1 with 1"):
        lates.load(tmp_path / "mean", problem.model)


def test_the_file_holds_no_part_of_the_network_and_says_what_it_is_for(saved: Path, problem: Problem) -> None:
    tensors, metadata = read_calibration(saved)
    assert sum(value.numel() for value in tensors.values()) == (48 + 48 + 96) * 10 + 3 * 10 + 4 + 4
    assert metadata["fit"]["classes"] == 10
    (voter,) = metadata["voters"]
    assert voter["names"] == ["stages.0", "stages.1", "stages.2", "head"]
    assert set(voter["network"]) == set(problem.model.state_dict())
    assert voter["network"]["fc.weight"][0] == [10, 24]


@given(where=st.tuples(st.sampled_from(["header", "tensors"]), st.floats(0, 1, exclude_max=True)))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_single_wrong_bit_is_refused(saved: Path, problem: Problem, where: tuple[str, float]) -> None:
    content, broken = bytearray(saved.read_bytes()), saved.with_name("broken")
    header = 8 * (8 + int.from_bytes(content[:8], "little"))
    first, last = (0, header) if where[0] == "header" else (header, 8 * len(content))
    bit = first + int(where[1] * (last - first))
    content[bit // 8] ^= 1 << bit % 8
    broken.write_bytes(content)
    with pytest.raises(ValueError, match="broken"):
        lates.load(broken, problem.model)


class Explosive:
    """Unpickling this would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def test_other_files_are_refused_and_never_unpickled(saved: Path, problem: Problem, tmp_path: Path) -> None:
    whole, other, exploded = saved.read_bytes(), tmp_path / "other", tmp_path / "exploded"
    cut_short = [whole[: int(share * len(whole))] for share in (0.0, 0.001, 0.3, 0.9999)]
    for content in (*cut_short, whole + b"more", b"\x00" * 64, pickle.dumps(Explosive(exploded))):
        other.write_bytes(content)
        with pytest.raises(ValueError, match=r"is not a whole safetensors file .*Save the calibration again"):
            lates.load(other, problem.model)
    assert not exploded.exists()
    save_file({"fc.weight": torch.zeros(2, 2)}, other)
    with pytest.raises(ValueError, match="holds tensors but no calibration"):
        lates.load(other, problem.model)
    for text in ("", "[1, 2]", "{", "[" * 10**5, '{"format": 3}', "null"):
        save_file(load_file(saved), other, {KEY: text})
        with pytest.raises(ValueError, match=r"damaged|has format"):
            lates.load(other, problem.model)


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path, problem: Problem, calibrated: lates.CalibratedModel) -> None:
    for nowhere in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError, match="There is no file"):
            lates.load(nowhere, problem.model)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        calibrated.save(tmp_path / "absent" / "file")


@pytest.mark.parametrize("version", [0, 1, 4, "2", None, [3]])
def test_other_format_versions_are_refused(saved: Path, problem: Problem, version: object) -> None:
    forge(saved, lambda metadata: metadata.update(format=version))
    with pytest.raises(ValueError, match=rf"has format {re.escape(str(version))}; .* reads format 2 and {FORMAT}"):
        lates.load(saved, problem.model)


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata.pop("fit"),
        lambda metadata: metadata["fit"].pop("nll"),
        lambda metadata: metadata["fit"].update(extra=1),
        lambda metadata: metadata.update(voters=None),
        lambda metadata: metadata["voters"][0].pop("names"),
        lambda metadata: metadata["voters"][0]["poolings"].pop("stages.1"),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].pop("size"),
        lambda metadata: metadata["voters"][0].update(network={"fc.weight": 3}),
        lambda metadata: metadata["voters"][0].update(names=["stages.9", "stages.1", "stages.2", "head"]),
        lambda metadata: metadata["voters"][0].update(accuracies=[0.5]),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(method="median"),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(size=[3000, 3000]),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(size=[3000, 3000, 48], method="spatial"),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(size=[10**9], method="flat"),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(size=[2, 2, 2, 2]),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(layout="tokens"),
        lambda metadata: metadata["voters"][0]["poolings"]["stages.1"].update(channels_axis=7),
        lambda metadata: metadata["voters"][0].update(names=["stages.1", "stages.0", "stages.2", "head"]),
        lambda metadata: metadata["voters"][0].update(network={"fc.weight": [1, 2, 3]}),
        lambda metadata: metadata["voters"][0].update(accuracies=[0.5, 0.5, 0.5, float("nan")]),
        lambda metadata: metadata["fit"].update(temperature_weights=[-1.0]),
        lambda metadata: metadata.update(seed=2**70),
        lambda metadata: metadata.update(voters=[]),
        lambda metadata: metadata["fit"].update(classes=9),
        lambda metadata: metadata["fit"].update(nll="low"),
        lambda metadata: metadata["fit"].update(temperature_weights=[0.5, 0.5]),
        lambda metadata: metadata.update(seed="zero"),
    ],
)
def test_metadata_that_do_not_fit_one_another_are_refused(saved: Path, problem: Problem, change: Any) -> None:
    forge(saved, change)
    for read in (partial(lates.load, model=problem.model), read_contents):
        with pytest.raises(ValueError, match=rf"The contents of {saved} are damaged .*Save the calibration again"):
            read(saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("0.weights", torch.tensor([1.0, -1.0, 1.0, 1.0])),
        ("0.weights", torch.ones(3)),
        ("0.deviations", torch.tensor([1.0, float("nan"), 1.0, 1.0])),
        ("0.probes.0.bias", torch.full((10,), float("inf"))),
        ("0.probes.0.down", torch.zeros(9, 48)),
        ("0.probes.0.down", torch.zeros(10, 48, dtype=torch.int64)),
        ("0.probes.0.down", torch.zeros(10, 48, dtype=torch.float8_e4m3fn)),
        ("0.probes.0.down", torch.zeros(10, 48, dtype=torch.float16)),
        ("0.probes.7.down", torch.zeros(10, 48)),
        ("1.weights", torch.ones(4)),
    ],
)
def test_tensors_that_do_not_fit_one_another_are_refused(saved: Path, problem: Problem, name: str, value: torch.Tensor) -> None:
    forge(saved, **{name: value})
    for read in (partial(lates.load, model=problem.model), read_contents):
        with pytest.raises(ValueError, match="Save the calibration again"):
            read(saved)


def test_the_same_calibration_gives_the_same_bytes(saved: Path, calibrated: lates.CalibratedModel) -> None:
    before = saved.read_bytes()
    for _ in range(12):
        calibrated.save(saved)
        assert saved.read_bytes() == before


def test_caps_of_probes_are_saved(problem: Problem, tmp_path: Path) -> None:
    calibrated = calibrate(problem, views=lambda images: images / 2, expect_shift=True)
    calibrated.save(tmp_path / "capped")
    images = 100 * problem.images
    assert torch.equal(lates.load(tmp_path / "capped", problem.model)(images), calibrated(images))
    uncapped = calibrate(problem, views=lambda images: images / 2, settings=replace(lates.DEFAULT, last_block=False))
    assert not torch.allclose(uncapped(images) * calibrated.fit.scale, calibrated(images))
