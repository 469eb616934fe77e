"""Every method against an oracle: scipy, torch's autograd, or the library's own `calibrate` from end to end."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import lates
from experiments.material import AVERAGE, Batches, Clock, HoldOut, Material, gather_material
from experiments.methods import BUDGETS, HEAD, LOGITS, METHODS, Fitted, Recorded
from experiments.recording import Recorder, measure_probes, predict_methods
from experiments.training import measure_accuracy
from tests.experiments.sample import sample_data, tiny_network

SCHEMA = {
    "network", "temperature", "temperature_sgd", "temperature_jittered_holdout", "temperature_tau_sgd",
    "temperature_brier", "vector_scaling", "head_refitted_shift", "head_refitted_jitter", "lates_paper",
    "head_refitted_both_holdouts",
    "lates_jittered_holdout", "lates_both_holdouts", "temperature_both_holdouts", "lates_last_block",
    *(f"lates_{views}_{budget}" for views in ("none", "shift", "jitter") for budget in ("0.5", "1", "2", "5", "all")),
}  # fmt: skip


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return tiny_network("tiny_resnet")


@cache
def gathered(name: str) -> Material:
    data = sample_data()
    return gather_material(tiny_network(name), data.train, data.holdout, 0, Clock(torch.device("cpu")))


@pytest.fixture(scope="module")
def material() -> Material:
    return gathered("tiny_resnet")


@pytest.fixture(scope="module")
def fitted(material: Material) -> dict[str, Fitted]:
    return {name: method(material) for name, method in METHODS.items()}


def holdout_recorded(material: Material) -> dict[str, Recorded]:
    return {
        kind: {**features.blocks, LOGITS: features.logits}
        for kind, features in (("grid", material.holdout), ("flat", material.holdouts["paper"]))
    }


def nll(logits: Tensor, labels: Tensor) -> float:
    return float(nn.functional.cross_entropy(logits.double(), labels))


def test_the_table_holds_the_schemas_methods() -> None:
    assert set(METHODS) == SCHEMA


def test_temperature_is_scipys_optimum(material: Material, fitted: dict[str, Fitted]) -> None:
    logits, labels = material.holdout.logits.double(), material.holdout.labels

    def optimum(loss: Callable[[Tensor, Tensor], float]) -> float:
        found = minimize(lambda beta: loss(float(beta[0]) * logits, labels), [1.0], method="Nelder-Mead", tol=1e-12)
        return float(found.x[0])

    assert fitted["temperature"].weights[HEAD] == pytest.approx(optimum(nll), rel=1e-5)
    assert fitted["temperature_brier"].weights[HEAD] == pytest.approx(optimum(lates.metrics.brier), rel=1e-4)


def test_temperature_on_a_jittered_holdout_is_its_optimum(material: Material, fitted: dict[str, Fitted]) -> None:
    jittered = material.holdouts["jittered"]
    stack = lates.TemperatureScaling().fit(jittered.logits, jittered.labels)
    assert 1 / fitted["temperature_jittered_holdout"].weights[HEAD] == pytest.approx(stack.temperature_, rel=1e-6)
    assert jittered.rows == lates.DEFAULT.passes * material.holdout.rows


def test_on_both_holdouts_the_plain_and_one_jittered_view_count_alike(
    material: Material, fitted: dict[str, Fitted]
) -> None:
    rows, jittered, both = material.holdout.rows, material.holdouts["jittered"], material.holdouts["both"]
    assert both.rows == 2 * rows
    for name, values in both.blocks.items():
        torch.testing.assert_close(values[:rows], material.holdout.blocks[name])
        torch.testing.assert_close(values[rows:], jittered.blocks[name][:rows])
    assert torch.equal(both.labels[:rows], both.labels[rows:])
    logits = torch.cat([material.holdout.logits, jittered.logits[:rows]])
    scaling = lates.TemperatureScaling().fit(logits, both.labels)
    assert 1 / fitted["temperature_both_holdouts"].weights[HEAD] == pytest.approx(scaling.temperature_, rel=1e-6)
    assert fitted["lates_both_holdouts"].weights != fitted["lates_jittered_holdout"].weights


def test_temperature_by_sgd_is_the_stacks_and_not_its_optimum(material: Material, fitted: dict[str, Fitted]) -> None:
    stack = lates.fit_stack({HEAD: material.holdout.logits}, material.holdout.labels, solver="sgd", seed=material.seed)
    assert fitted["temperature_sgd"].weights == {HEAD: stack.weights.item()}
    assert fitted["temperature_sgd"].weights[HEAD] != pytest.approx(fitted["temperature"].weights[HEAD], rel=1e-3)


@pytest.mark.parametrize(
    ("method", "holdout", "views"),
    [
        ("lates_jittered_holdout", "jittered", "jitter"),
        ("lates_both_holdouts", "both", "jitter"),
        ("lates_jitter_1", "plain", "jitter"),
        ("lates_last_block", "plain", "shift"),
    ],
)
def test_weights_are_the_optimum_on_the_methods_own_holdout(
    material: Material, fitted: dict[str, Fitted], method: str, holdout: HoldOut, views: str
) -> None:
    """Of probes that are those trained on its views, cut to 1 %."""
    rows, found = material.holdouts[holdout], fitted[method]
    considered = [name for name in found.weights if name != HEAD]
    cut = lates.fit_budget({name: material.probes[views][name] for name in considered}, rows, 0.01)
    assert found.probes
    for name, probe in found.probes.items():
        assert torch.equal(probe.logits(rows.blocks[name]), cut[name].logits(rows.blocks[name]))
    members = {name: probe.logits(rows.blocks[name]) for name, probe in found.probes.items()} | {HEAD: rows.logits}
    stack = lates.fit_stack(members, rows.labels)
    voting = {name: found.weights[name] for name in stack.names}
    assert voting == pytest.approx(dict(zip(stack.names, stack.weights.tolist(), strict=True)), rel=1e-3)


def test_sgd_in_tau_is_torchs(material: Material, fitted: dict[str, Fitted]) -> None:
    logits, labels = material.holdout.logits.double(), material.holdout.labels
    tau = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([tau], lr=0.005)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        for batch in torch.randperm(len(labels), generator=generator).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(logits[batch] / tau, labels[batch]).backward()
            optimiser.step()
    assert 1 / fitted["temperature_tau_sgd"].weights[HEAD] == pytest.approx(tau.item(), rel=1e-9)
    assert tau.item() != pytest.approx(1, abs=1e-4)


def test_vector_scaling_is_scipys_optimum(material: Material, fitted: dict[str, Fitted]) -> None:
    logits, labels = material.holdout.logits.double(), material.holdout.labels

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(values).requires_grad_()
        loss = nn.functional.cross_entropy(point[:10] * logits + point[10:], labels)
        (gradient,) = torch.autograd.grad(loss, point)
        return loss.item(), gradient.numpy()

    start = np.concatenate([np.ones(10), np.zeros(10)])
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-14})
    reached = nll(fitted["vector_scaling"].predict(holdout_recorded(material)["grid"]), labels)
    assert reached == pytest.approx(best.fun, abs=1e-4)
    assert reached <= nll(fitted["temperature"].predict(holdout_recorded(material)["grid"]), labels)


def test_a_refitted_head_is_a_linear_map_of_what_the_head_reads(
    network: nn.Module, material: Material, fitted: dict[str, Fitted]
) -> None:
    """The features under `AVERAGE` are the head's own inputs, to the last digit."""
    average = material.holdout.blocks[AVERAGE]
    torch.testing.assert_close(network.get_submodule("head")(average), material.holdout.logits, rtol=1e-4, atol=1e-5)
    for views in ("shift", "jitter"):
        method = fitted[f"head_refitted_{views}"]
        probe = material.probes[views][AVERAGE].probe
        expected = method.weights[HEAD] * (average @ probe.down.T + probe.bias)
        torch.testing.assert_close(method.predict({AVERAGE: average, LOGITS: torch.empty(0)}), expected)
        scaling = lates.TemperatureScaling().fit(probe.logits(average), material.holdout.labels)
        assert 1 / method.weights[HEAD] == pytest.approx(scaling.temperature_, rel=1e-6)
        assert method.added_parameters == method.added_flops == 0


def test_a_refitted_head_gets_its_temperature_on_the_holdouts_that_lates_sees(
    material: Material, fitted: dict[str, Fitted]
) -> None:
    head, both = fitted["head_refitted_both_holdouts"], material.holdouts["both"]
    probe = material.probes["jitter"][AVERAGE].probe
    scaling = lates.TemperatureScaling().fit(probe.logits(both.blocks[AVERAGE]), both.labels)
    assert 1 / head.weights[HEAD] == pytest.approx(scaling.temperature_, rel=1e-6)
    assert head.weights != fitted["head_refitted_jitter"].weights
    assert head.head is not None
    assert head.head.probe is probe
    assert set(head.stages) == set(fitted["lates_both_holdouts"].stages)


def test_material_can_be_had_in_part(network: nn.Module, material: Material) -> None:
    """What is there is as in the whole, and what was not asked for took no time."""
    data, clock = sample_data(), Clock(torch.device("cpu"))
    part = gather_material(network, data.train, data.holdout, 0, clock, kinds=("none",))
    assert METHODS["lates_none_1"](part).weights == METHODS["lates_none_1"](material).weights
    assert set(clock.seconds) == {"extraction_holdout", "extraction_none", "probes_none"}
    recorder = Recorder(network, part)
    assert list(measure_probes(recorder, part, data.test)) == ["grid"]


def test_the_holdout_orders_the_methods(material: Material, fitted: dict[str, Fitted]) -> None:
    """Each stack contains temperature scaling, and temperature scaling the network."""
    recorded, labels = holdout_recorded(material), material.holdout.labels
    losses = {name: nll(logits, labels) for name, logits in predict_methods(fitted, recorded).items()}
    assert losses["temperature"] <= losses["temperature_sgd"] <= losses["network"]
    for name in METHODS:
        if name.startswith(("lates_none", "lates_shift", "lates_jitter_", "lates_last")):
            assert losses[name] <= losses["temperature"] + 1e-6, name


@pytest.mark.parametrize("views", ["none", "shift", "jitter"])
def test_budgets_are_kept(material: Material, fitted: dict[str, Fitted], views: str) -> None:
    parameters = material.holdout.parameters
    for name, budget in BUDGETS.items():
        spent = fitted[f"lates_{views}_{name}"].added_parameters
        assert spent <= parameters * (1 if budget is None else budget)
    assert fitted[f"lates_{views}_all"].added_parameters > 0
    assert fitted["lates_paper"].added_parameters <= 0.01 * parameters


def test_contributions_sum_to_one_and_probes_are_those_that_vote(fitted: dict[str, Fitted]) -> None:
    for name, method in fitted.items():
        assert sum(method.contributions.values()) == pytest.approx(1), name
        assert list(method.weights)[-1] == HEAD
        assert {block for block, weight in method.weights.items() if weight > 0} - {HEAD} == set(method.probes)
        assert set(method.ranks) == set(method.probes)


def test_the_last_block_gets_a_probe_only_where_asked(material: Material, fitted: dict[str, Fitted]) -> None:
    assert material.last_block == "layer4.0"
    assert list(fitted["lates_shift_1"].weights) == ["layer1.0", "layer2.0", "layer3.0", HEAD]
    assert list(fitted["lates_last_block"].weights) == ["layer1.0", "layer2.0", "layer3.0", "layer4.0", HEAD]


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("temperature", {"blocks": []}),
        ("lates_none_all", {"views": None, "passes": 1, "budget": None}),
        ("lates_none_1", {"views": None, "passes": 1, "budget": 0.01}),
        ("lates_shift_2", {"views": "shift", "budget": 0.02}),
        ("lates_jitter_5", {"views": "jitter", "budget": 0.05}),
        ("lates_paper", {"views": "flip", "settings": lates.PAPER}),
    ],
)
@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_vgg"])
def test_what_is_pieced_together_is_what_calibrate_gives(method: str, arguments: dict[str, Any], name: str) -> None:
    """From end to end on test images: shared extraction, cut probes, weights and the shared forward pass."""
    data, network, material = sample_data(), tiny_network(name), gathered(name)
    images, _ = next(iter(Batches(data.test)))
    ours = predict_methods({method: METHODS[method](material)}, Recorder(network, material)(images))[method]
    calibrated = lates.calibrate(
        network,
        train=Batches(data.train),
        holdout=Batches(data.holdout),
        progress=False,
        **arguments,
    )
    with torch.no_grad():
        torch.testing.assert_close(ours, calibrated(images), rtol=1e-3, atol=1e-4)


def test_the_seed_reaches_views_and_probes(network: nn.Module, material: Material) -> None:
    """Of another seed, too, everything is what `calibrate` gives from it."""
    data = sample_data()
    other = gather_material(network, data.train, data.holdout, 3, Clock(torch.device("cpu")), ("jitter", "paper"))
    for method, arguments in (
        ("lates_jitter_1", {"views": "jitter", "budget": 0.01}),
        ("lates_paper", {"views": "flip", "settings": lates.PAPER}),
    ):
        calibrated = lates.calibrate(
            network, train=Batches(data.train), holdout=Batches(data.holdout), seed=3, progress=False, **arguments
        )
        weights = METHODS[method](other).weights
        assert {name: weights[name] for name in calibrated.weights} == pytest.approx(calibrated.weights, rel=1e-3)
        assert weights != pytest.approx(METHODS[method](material).weights, rel=1e-2)


def test_recording_leaves_no_hook_and_sees_what_the_network_does(network: nn.Module, material: Material) -> None:
    data = sample_data()
    recorder = Recorder(network, material)
    recorded = recorder(next(iter(Batches(data.holdout)))[0])
    for kind, features in (("grid", material.holdout), ("flat", material.holdouts["paper"])):
        assert set(recorded[kind]) == {*features.blocks, LOGITS}
        for name, values in features.blocks.items():
            torch.testing.assert_close(recorded[kind][name], values, rtol=1e-4, atol=1e-5)
    assert not any(module._forward_hooks for module in network.modules())
    with pytest.raises(RuntimeError):
        recorder(torch.zeros(1, 1, 8, 8))
    assert not any(module._forward_hooks for module in network.modules())


def test_probe_accuracies_come_in_depth_order_with_the_head(network: nn.Module, material: Material) -> None:
    test = sample_data().test
    by_kind = measure_probes(Recorder(network, material), material, test)
    assert list(by_kind) == ["grid", "flat"]
    for accuracies in by_kind.values():
        assert list(accuracies) == ["layer1.0", "layer2.0", "layer3.0", HEAD]
        assert accuracies[HEAD] == pytest.approx(measure_accuracy(network, test))
        assert all(0 < value < 1 for value in accuracies.values())
    assert by_kind["grid"] != by_kind["flat"]


def test_material_is_a_function_of_its_seed(network: nn.Module, material: Material) -> None:
    data = sample_data()
    again = gather_material(network, data.train, data.holdout, 0, Clock(torch.device("cpu")))
    for name in ("lates_jitter_1", "lates_paper"):
        assert METHODS[name](again).weights == METHODS[name](material).weights
    assert METHODS["lates_paper"](replace(again, seed=1)).weights != METHODS["lates_paper"](again).weights
