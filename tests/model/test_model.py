import copy
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

import lates
from lates.model.storage import write_calibration
from tests.conftest import Problem

Both = tuple[lates.Features, lates.Features]
BLOCKS = ["stages.0", "stages.1", "stages.2"]
NO_FIT = lates.Stack(
    torch.ones(1), ("head",), torch.ones(1), "nll", 1000, 10, 1.0, 3.0, 2.0, (0.5,), certified=True, unbounded=False
)


def with_weights(model: nn.Module, features: Both, weights: dict[str, float], rank: int = 0) -> lates.CalibratedModel:
    """A calibrated model of these weights, its probes dense or cut to `rank`."""
    trained = lates.train_probes(*features)
    probes = {name: probe.cut(rank) if rank else probe.probe for name, probe in trained.items()}
    names, values = tuple(weights), torch.tensor(list(weights.values()), dtype=torch.float64)
    fit = replace(NO_FIT, names=names, weights=values, deviations=torch.ones(len(names)))
    return lates.CalibratedModel.assemble(model, [probes], fit, [features[0].poolings])


def logits_of(model: nn.Module, *inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model(*inputs)


def flops(model: nn.Module, images: Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    return counter.get_total_flops()


def test_forward_is_the_weighted_sum_of_the_members(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    members = calibrated.members(problem.images)
    assert isinstance(members, Tensor)
    assert members.shape == (1000, 10, len(calibrated.member_names))
    weights = torch.tensor([calibrated.weights[name] for name in calibrated.member_names])
    torch.testing.assert_close(logits_of(calibrated, problem.images), members @ weights, atol=1e-4, rtol=0)
    torch.testing.assert_close(members[:, :, -1], logits_of(problem.model, problem.images))


def test_the_members_are_the_probes_on_the_recorded_features(
    problem: Problem, features: Both, calibrated: lates.CalibratedModel
) -> None:
    images = torch.cat([batch for batch, _ in problem.holdout])
    members = calibrated.members(images)
    assert isinstance(members, Tensor)
    trained = lates.train_probes(*features)
    for place, name in enumerate(calibrated.member_names[:-1]):
        torch.testing.assert_close(
            members[:, :, place], trained[name].probe.logits(features[1].blocks[name]), atol=1e-4, rtol=0
        )


def test_contributions_are_shares_and_spread_weighs_by_deviation(features: Both, calibrated: lates.CalibratedModel) -> None:
    assert list(calibrated.contributions) == [*BLOCKS, "head"]
    assert sum(calibrated.contributions.values()) == pytest.approx(1)
    total = sum(calibrated.weights.values())
    for name, weight in calibrated.weights.items():
        assert calibrated.contributions[name] == pytest.approx(weight / total)
    centred = features[1].logits - features[1].logits.mean(1, keepdim=True)
    deviation = float(centred.double().square().mean().sqrt())
    assert calibrated.spread["head"] == pytest.approx(calibrated.weights["head"] * deviation, rel=1e-5)


def test_temperature_is_one_over_the_weight_of_a_lone_head(problem: Problem, features: Both) -> None:
    silent = with_weights(problem.model, features, dict.fromkeys((*BLOCKS, "head"), 0.0))
    assert silent.temperature == float("inf")
    cooled = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.0), "head": 0.5})
    assert (cooled.temperature, cooled.member_names) == (2.0, ["head"])
    assert silent.contributions == dict.fromkeys((*BLOCKS, "head"), 0.0)
    assert torch.equal(silent.predict_proba(problem.images[:3]), torch.full((3, 10), 0.1))
    probes_alone = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.5), "head": 0.0})
    assert probes_alone.contributions["head"] == 0
    assert (hasattr(cooled, "temperature"), hasattr(probes_alone, "temperature")) == (True, False)
    with pytest.raises(AttributeError, match="A stack of 4 members has no single temperature"):
        _ = probes_alone.temperature


@pytest.mark.parametrize("rank", [0, 2])
def test_a_member_of_weight_0_costs_nothing(problem: Problem, features: Both, rank: int) -> None:
    images = problem.images[:16]
    plain = flops(problem.model, images)
    none = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.0), "head": 1.0}, rank)
    one = with_weights(problem.model, features, {"stages.0": 0.0, "stages.1": 1.0, "stages.2": 0.0, "head": 1.0}, rank)
    assert flops(none, images) == plain
    assert flops(one, images) == plain + 2 * 16 * (2 * (48 + 10) if rank else 48 * 10)
    assert none.added_parameters == 0
    assert one.added_parameters == (2 * (48 + 10) if rank else 48 * 10) + 10
    hooked = [name for name, part in one.networks[0].named_modules() if part._forward_hooks]
    assert hooked == ["network.network.stages.1"]


def test_it_stays_in_evaluation(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    before = logits_of(calibrated, problem.images)
    for mode in (calibrated.train, calibrated.eval):
        assert mode() is calibrated
        assert not any(part.training for part in calibrated.modules())
        assert torch.equal(logits_of(calibrated, problem.images), before)


def test_parameters_are_shared_until_moved(problem: Problem, features: Both) -> None:
    calibrated = with_weights(problem.model, features, dict.fromkeys((*BLOCKS, "head"), 0.3))
    own = dict(problem.model.named_parameters())
    shared = {name.removeprefix("networks.0.network.network."): p for name, p in calibrated.named_parameters()}
    assert all(shared[name] is parameter for name, parameter in own.items())
    before = logits_of(calibrated, problem.images)
    cast = calibrated.to(torch.float64)
    assert cast is calibrated
    assert {p.dtype for p in problem.model.parameters()} == {torch.float32}
    after = logits_of(cast, problem.images.double())
    assert after.dtype == torch.float64
    torch.testing.assert_close(after.float(), before, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_still_predicts(problem: Problem, calibrated: lates.CalibratedModel, dtype: torch.dtype) -> None:
    half = copy.deepcopy(calibrated).to(dtype)
    logits = logits_of(half, problem.images.to(dtype))
    agreement = logits.argmax(1) == logits_of(calibrated, problem.images).argmax(1)
    assert float(agreement.double().mean()) > 0.95
    assert {p.dtype for p in calibrated.parameters()} == {torch.float32}


def test_under_autocast_the_probes_and_the_sum_keep_float32(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    plain = logits_of(calibrated, problem.images)
    with torch.autocast("cpu", torch.bfloat16):
        cast = logits_of(calibrated, problem.images)
        members = calibrated.members(problem.images)
    assert cast.dtype == torch.float32
    assert isinstance(members, Tensor)
    weights = torch.tensor([calibrated.weights[name] for name in calibrated.member_names])
    torch.testing.assert_close(cast, members @ weights, atol=1e-4, rtol=0)
    assert float((cast - plain).abs().mean()) < 0.05


def test_a_deep_copy_is_equal_and_independent(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    twin = copy.deepcopy(calibrated)
    before = logits_of(calibrated, problem.images)
    assert torch.equal(logits_of(twin, problem.images), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(logits_of(calibrated, problem.images), before)
    assert float(logits_of(twin, problem.images).abs().max()) == 0


def test_the_state_dict_carries_everything(problem: Problem, features: Both, calibrated: lates.CalibratedModel) -> None:
    weights = {name: 2 * weight + 0.1 for name, weight in calibrated.weights.items()}
    other = with_weights(copy.deepcopy(problem.model), features, weights)
    assert not torch.equal(logits_of(other, problem.images), logits_of(calibrated, problem.images))
    other.load_state_dict(copy.deepcopy(calibrated.state_dict()))
    assert torch.equal(logits_of(other, problem.images), logits_of(calibrated, problem.images))
    assert other.weights == calibrated.weights
    earlier = {name: part for name, part in calibrated.state_dict().items() if name != "_extra_state"}
    assert not any(other.load_state_dict(earlier)), "versions that do not say who votes"
    assert other.to("meta").state_dict().keys() == calibrated.state_dict().keys()


@pytest.mark.parametrize("change", [{BLOCKS[0]: 0.0, BLOCKS[2]: 0.4}, {"head": 0.5}])
def test_the_state_dict_of_other_members_is_refused_before_anything_is_loaded(
    problem: Problem, features: Both, change: dict[str, float]
) -> None:
    weights = {**dict.fromkeys(BLOCKS, 0.0), BLOCKS[0]: 0.4, "head": 0.0}
    one, other = (with_weights(problem.model, features, each) for each in (weights, weights | change))
    before = logits_of(one, problem.images)
    with pytest.raises(ValueError, match=rf"of 4 members, of which vote: .*Here vote, of 4: {BLOCKS[0]}\. To move"):
        one.load_state_dict(other.state_dict())
    assert torch.equal(logits_of(one, problem.images), before)


def test_threads_that_share_a_model_get_their_own_answers(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    parts = problem.images.split(100)
    expected = [logits_of(calibrated, part) for part in parts]
    wrong: list[int] = []

    def work(place: int) -> None:
        for _ in range(10):
            if not torch.allclose(logits_of(calibrated, parts[place]), expected[place], atol=1e-5):
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_gradients_reach_the_inputs_and_no_probe(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    images = problem.images[:4].clone().requires_grad_()
    (slope,) = torch.autograd.grad(calibrated(images).sum(), images)
    assert float(slope.abs().sum()) > 0
    probes = [p for name, p in calibrated.named_parameters() if ".probes." in name]
    assert len(probes) == 6
    assert not any(parameter.requires_grad for parameter in probes)


def test_the_table_fits_eighty_columns(problem: Problem, features: Both, calibrated: lates.CalibratedModel) -> None:
    text = str(calibrated)
    assert repr(calibrated) == text
    assert max(map(len, text.splitlines())) <= 80
    for part in (*BLOCKS, "head", "contribution", "1,000 rows", "certified", "parameters added"):
        assert part in text
    large = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.0), "head": 123456.789})
    names = ["a.very.deep.tree.of.modules.with.long.names.and.blocks.0", "model.encoder.layer.11", *BLOCKS[2:], "head"]
    large.fit = replace(
        large.fit,
        names=tuple(names),
        rows=12_345_678,
        nll_network=123.45678,
        loss="soft_ece",
        certified=False,
        unbounded=True,
    )
    lines = str(large).splitlines()
    assert max(map(len, lines)) <= 80
    assert "names.and.blocks.0" in lines[1]
    assert lines[-1] == "fitted to soft_ece: not bounded by the hold-out"


class Pair(nn.Module):
    """Takes two inputs, by position or by name, and returns a mapping with logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.fc = nn.Linear(16, 3)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        return {"logits": self.fc(self.body(torch.cat([left, right], dim=1)))}


def test_tuples_and_mappings_are_passed_on_as_the_loader_gave_them() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 60, 4, generator=generator)
    labels = (left[:, 0] > right[:, 0]).long()
    model = Pair()
    by_position = [(left, right, labels)]
    by_name = [{"left": left, "right": right, "labels": labels}]
    held = [(left.flip(0) + 0.1, right.flip(0), labels.flip(0))]
    first = lates.calibrate(model, train=by_position, holdout=held, budget=None, progress=False)
    named = [{"left": held[0][0], "right": held[0][1], "labels": held[0][2]}]
    second = lates.calibrate(model, train=by_name, holdout=named, budget=None, progress=False)
    assert first.weights == second.weights
    expected = logits_of(first, left, right).softmax(1)
    assert torch.equal(first.predict_proba((left, right)), expected)
    assert torch.equal(second.predict_proba({"right": right, "left": left}), expected)
    assert torch.equal(second(left=left, right=right), first(left, right))


@pytest.mark.parametrize("flat", [False, True])
def test_one_logit_gives_two_columns(flat: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    if flat:
        model.append(nn.Flatten(0))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 4, generator=generator)
    labels = (rows[:, 0] * rows[:, 1] + 0.3 * torch.randn(400, generator=generator) > 0).long()
    calibrated = lates.calibrate(
        model, train=[(rows[:200], labels[:200])], holdout=[(rows[200:], labels[200:])], budget=None, progress=False
    )
    probabilities = calibrated.predict_proba(rows)
    assert probabilities.shape == (400, 2)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(400))
    members = calibrated.members(rows)
    assert isinstance(members, Tensor)
    assert members.shape == (400, 2, len(calibrated.member_names))
    assert float(members[:, 0, -1].abs().max()) == 0
    assert calibrated.fit.nll <= calibrated.fit.nll_temperature <= calibrated.fit.nll_network


def test_weights_of_cached_logits_are_told_from_a_calibration(problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "fitted.safetensors"
    write_calibration(path, {"weights": torch.ones(1)}, {"fitted": {}})
    with pytest.raises(ValueError, match="holds weights for saved logits, by `lates fit`"):
        lates.load(path, problem.model)


def test_predictions_of_arrays_and_loaders_are_those_of_tensors(problem: Problem, features: Both) -> None:
    calibrated = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.3), "head": 0.5})
    images, labels = problem.images, problem.labels
    expected = calibrated.predict_proba(images)
    torch.testing.assert_close(expected, calibrated(images).detach().softmax(-1))
    array = calibrated.predict_proba(images.double().numpy())
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, expected.numpy(), atol=1e-6)
    np.testing.assert_array_equal(calibrated.predict(images.numpy()), expected.argmax(1).numpy())
    with pytest.raises(TypeError, match=r"batch holds 2 inputs.*of several batches make tuples: \[\(first,\), "):
        calibrated.predict_proba([images[:5], images[5:]])
    dataset = TensorDataset(images, labels)
    loaders: list[Any] = [
        DataLoader(dataset, batch_size=100),
        DataLoader(TensorDataset(images), batch_size=100),
        [{"image": images, "label": labels}],
        (rows for rows in images.split(100)),
    ]
    for loader in loaders:
        torch.testing.assert_close(calibrated.predict_proba(loader), expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(calibrated.predict(DataLoader(dataset, batch_size=64)), expected.argmax(1))
    with pytest.raises(ValueError, match="The loader yielded no batch"):
        calibrated.predict(iter(()))


def test_notebooks_show_the_members_escaped_and_without_scripts(problem: Problem, features: Both) -> None:
    calibrated = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.25), "head": 0.25})
    calibrated.fit = replace(calibrated.fit, names=("<script>", *calibrated.fit.names[1:]))
    html = calibrated._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("25.0%") == 4
    assert "fitted to nll: the optimum, certified" in html


def test_trace_computes_the_same(problem: Problem, features: Both) -> None:
    calibrated = with_weights(problem.model, features, {**dict.fromkeys(BLOCKS, 0.3), "head": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced: Any = torch.jit.trace(calibrated, problem.images[:2])
    torch.testing.assert_close(traced(problem.images[:9]), calibrated(problem.images[:9]))
