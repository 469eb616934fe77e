"""Every method against an oracle: scipy, torch's autograd, or the library's own `calibrate` from end to end."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lates
from experiments.data.datasets import as_inputs
from experiments.evaluation.clock import Clock
from experiments.evaluation.evaluate import measure_probes, predict_methods
from experiments.evaluation.methods import BUDGETS, HEAD, METHODS, Fitted
from experiments.evaluation.prepared import AVERAGE, PAPER_BLOCKS, STEM, VIEWS, Batches, HoldOut, Prepared, prepare
from experiments.evaluation.rivals.density import Neighbours
from tests.experiments.sample import accuracy_of, sample_data, tiny_network


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return tiny_network("tiny_resnet")


@cache
def prepared_for(name: str) -> Prepared:
    data = sample_data()
    return prepare(tiny_network(name), data.train, data.holdout, 0, Clock(torch.device("cpu")))


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepared_for("tiny_resnet")


@pytest.fixture(scope="module")
def fitted(prepared: Prepared) -> dict[str, Fitted]:
    return {name: method(prepared) for name, method in METHODS.items()}


def nll(logits: Tensor, labels: Tensor) -> float:
    return float(nn.functional.cross_entropy(logits.double(), labels))


def parameters_of(method: Fitted) -> float:
    return method.describe(1, 1)["parameters"]


def test_the_holdout_both_is_the_plain_one_and_one_jittered_view(prepared: Prepared) -> None:
    rows, jittered, both = prepared.holdout.rows, prepared.holdouts["jittered"], prepared.holdouts["both"]
    assert (jittered.rows, both.rows) == (2 * rows, 2 * rows)
    for name, values in both.blocks.items():
        torch.testing.assert_close(values[:rows], prepared.holdout.blocks[name])
        torch.testing.assert_close(values[rows:], jittered.blocks[name][:rows])
    torch.testing.assert_close(both.logits, torch.cat([prepared.holdout.logits, jittered.logits[:rows]]))
    assert torch.equal(both.labels[:rows], both.labels[rows:])


@pytest.mark.parametrize(
    ("name", "holdout", "loss"),
    [
        ("temperature", "plain", "nll"),
        ("temperature_brier", "plain", "brier"),
        ("temperature_jittered_holdout", "jittered", "nll"),
        ("temperature_both_holdouts", "both", "nll"),
        ("temperature_robust_holdout", "robust", "nll"),
    ],
)
def test_temperature_is_the_stack_of_the_head_alone(
    prepared: Prepared, fitted: dict[str, Fitted], name: str, holdout: HoldOut, loss: str
) -> None:
    rows = prepared.holdouts[holdout]
    stack = lates.fit_stack({HEAD: rows.logits}, rows.labels, loss=loss, passes=rows.passes)
    assert fitted[name].weights == {HEAD: pytest.approx(stack.weights.item(), rel=1e-6)}
    torch.testing.assert_close(fitted[name].predict(rows), stack.weights.item() * rows.logits)


@pytest.mark.parametrize(
    ("method", "holdout", "views"),
    [
        ("lates_jittered_holdout", "jittered", "jitter"),
        ("lates_both_holdouts", "both", "jitter"),
        ("lates_jitter_1", "plain", "jitter"),
        ("lates_last_block", "plain", "shift"),
    ],
)
def test_weights_are_the_optimum_on_the_methods_holdout(
    prepared: Prepared, fitted: dict[str, Fitted], method: str, holdout: HoldOut, views: str
) -> None:
    """Of probes that are those trained on its views, cut to 1 %."""
    rows, result = prepared.holdouts[holdout], fitted[method]
    considered = [name for name in result.weights if name != HEAD]
    cut = lates.fit_budget({name: prepared.probes[views][name] for name in considered}, rows, 0.01)
    assert result.probes
    for name, probe in result.probes.items():
        assert torch.equal(probe.logits(rows.blocks[name]), cut[name].logits(rows.blocks[name]))
    stack = lates.fit_stack(lates.member_logits(result.probes, rows), rows.labels, passes=rows.passes)
    voting = {name: result.weights[name] for name in stack.names}
    assert voting == pytest.approx(dict(zip(stack.names, stack.weights.tolist(), strict=True)), rel=1e-3)


@pytest.mark.parametrize(
    ("method", "views", "holdout"),
    [
        ("head_refitted_none", "none", "plain"),
        ("head_refitted_robust_holdout", "robust", "robust"),
        ("head_refitted_jitter", "jitter", "plain"),
        ("head_refitted_both_holdouts", "jitter", "both"),
    ],
)
def test_a_refitted_head_is_a_linear_map_of_what_the_head_reads(
    network: nn.Module, prepared: Prepared, fitted: dict[str, Fitted], method: str, views: str, holdout: HoldOut
) -> None:
    average = prepared.holdout.blocks[AVERAGE]
    torch.testing.assert_close(network.get_submodule("head")(average), prepared.holdout.logits, rtol=1e-4, atol=1e-5)
    probe, rows = prepared.probes[views][AVERAGE].probe, prepared.holdouts[holdout]
    expected = fitted[method].weights[HEAD] * (average @ probe.down.T + probe.bias).double()
    torch.testing.assert_close(fitted[method].predict(prepared.holdout), expected.log_softmax(1), rtol=1e-4, atol=1e-5)
    stack = lates.fit_stack({HEAD: probe.logits(rows.blocks[AVERAGE])}, rows.labels, passes=rows.passes)
    assert fitted[method].weights[HEAD] == pytest.approx(stack.weights.item(), rel=1e-6)
    assert parameters_of(fitted[method]) == 0


def test_the_holdout_orders_the_methods(prepared: Prepared, fitted: dict[str, Fitted]) -> None:
    """Each stack contains temperature scaling, and temperature scaling the network."""
    predicted = predict_methods(fitted, prepared.holdouts)
    losses = {name: nll(logits, prepared.holdout.labels) for name, logits in predicted.items()}
    assert losses["temperature"] <= losses["temperature_sgd"] <= losses["network"]
    assert losses["vector_scaling"] <= losses["sms"] <= losses["svs"] <= losses["temperature"] + 1e-3
    assert losses["lates_robust_sms"] <= losses["lates_robust_1"] + 1e-3
    for name in METHODS:
        if name.startswith("lates_") and not name.endswith(("paper", "brier", "expect_shift", "holdout", "holdouts", "sms")):
            assert losses[name] <= losses["temperature"] + 1e-6, name


@pytest.mark.parametrize("views", VIEWS)
def test_budgets_are_kept(prepared: Prepared, fitted: dict[str, Fitted], views: str) -> None:
    for name, budget in BUDGETS.items():
        if method := fitted.get(f"lates_{views}_{name}"):
            assert 0 < parameters_of(method) <= prepared.holdout.parameters * (1 if budget is None else budget)
    for name in ("lates_paper", "last_layer_grid"):
        assert parameters_of(fitted[name]) <= 0.01 * prepared.holdout.parameters


def test_contributions_sum_to_one_and_probes_are_those_that_vote(fitted: dict[str, Fitted]) -> None:
    for name, method in fitted.items():
        described = method.describe(1, 1)
        assert sum(described["contributions"].values()) == pytest.approx(1), name
        assert list(method.weights)[-1] == HEAD
        assert {block for block, weight in method.weights.items() if weight > 0} - {HEAD} == set(method.probes)
        assert set(described["ranks"]) == set(method.probes)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("temperature", {"blocks": []}),
        ("lates_none_all", {"views": None, "passes": 1, "budget": None}),
        ("lates_none_1", {"views": None, "passes": 1, "budget": 0.01}),
        ("lates_shift_2", {"views": "shift", "passes": 2, "budget": 0.02}),
        ("lates_jitter_5", {"views": "jitter", "passes": 2, "budget": 0.05}),
        ("lates_robust_brier", {"views": "robust", "loss": "brier"}),
        ("lates_last", {"settings": lates.DEFAULT}),
        ("lates_capped_rescaled", {"expect_shift": True}),
        ("lates_paper", {"views": "flip", "settings": lates.PAPER_LITERAL}),
    ],
)
@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_vgg"])
def test_predictions_from_features_equal_the_calibrated_model(method: str, arguments: dict[str, Any], name: str) -> None:
    """From end to end on test images: shared features, cut probes and weights give what `calibrate` gives on images."""
    data, prepared = sample_data(), prepared_for(name)
    ours = predict_methods({method: METHODS[method](prepared)}, prepared.read(data.test))[method]
    arguments = {"settings": PAPER_BLOCKS, **arguments}
    calibrated = lates.calibrate(
        tiny_network(name), train=Batches(data.train), holdout=Batches(data.holdout), progress=False, **arguments
    )
    with torch.no_grad():
        theirs = torch.cat([calibrated(images) for images, _ in Batches(data.test)])
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class Brightness(nn.Module):
    """Logits in proportion to the brightness of an image, which so can be an outlier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer1 = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4, bias=False), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(6, 8, 3, bias=False), nn.ReLU())
        self.average = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, 10, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return 20 * self.head(self.average(self.layer2(self.layer1(images))))


@pytest.mark.filterwarnings("ignore")
def test_expected_shift_is_the_librarys_where_the_holdout_has_an_outlier() -> None:
    data, network = sample_data(), Brightness().eval()
    images = (data.holdout.images // 40).index_fill(0, torch.tensor([5]), 255)
    holdout = replace(data.holdout, images=images)
    prepared = prepare(network, data.train, holdout, 0, Clock(torch.device("cpu")), ("robust",))
    calibrated = lates.calibrate(
        network, train=Batches(data.train), holdout=Batches(holdout), expect_shift=True, progress=False
    )
    weights = METHODS["lates_capped_rescaled"](prepared).weights
    assert {name: weights[name] for name in calibrated.weights} == pytest.approx(calibrated.weights, rel=1e-6)
    assert calibrated.fit.rows == len(holdout) - 1


def test_the_best_layer_predicts_the_holdout_best_of_all_alone(prepared: Prepared, fitted: dict[str, Fitted]) -> None:
    rows = prepared.holdout
    losses = {
        name: lates.fit_stack({HEAD: trained.probe.logits(rows.blocks[name])}, rows.labels).nll
        for name, trained in prepared.probes["robust"].items()
    }
    (chosen,) = fitted["best_layer"].probes
    assert chosen == min(losses, key=losses.__getitem__)
    assert nll(fitted["best_layer"].predict(rows), rows.labels) == pytest.approx(losses[chosen], rel=1e-5)


def test_distances_of_training_images_to_themselves_are_zero(prepared: Prepared) -> None:
    """Read as test images are: in the stem, four blocks and the logits."""
    found = prepared.read(sample_data().train)["density"].blocks
    assert found["nearest"].shape == (280, 6)
    torch.testing.assert_close(found["nearest"], torch.zeros(280, 6), atol=1e-5, rtol=0)
    assert (found["kth"] > 1e-4).float().mean() > 0.99


def test_distances_are_between_features_averaged_over_the_image(network: nn.Module, prepared: Prepared) -> None:
    data, averaged = sample_data(), replace(lates.DEFAULT, grid=1)
    names = [STEM, *lates.list_blocks(network)]
    train, test = (lates.extract(network, Batches(x), names, settings=averaged) for x in (data.train, data.test))
    layers = ({**features.blocks, "logits": features.logits} for features in (train, test))
    expected = Neighbours.of(next(layers), 10).squared_distances(next(layers))
    found = prepared.read(data.test)["density"].blocks
    torch.testing.assert_close(torch.stack([found["nearest"], found["kth"]], 2), expected)


def test_mirrored_logits_are_logs_of_mean_probabilities(network: nn.Module, prepared: Prepared) -> None:
    images = as_inputs(sample_data().test.images)
    with torch.no_grad():
        expected = (network(images).softmax(1) + network(images.flip(-1)).softmax(1)) / 2
    found = prepared.read(sample_data().test)["mirrored"].logits
    torch.testing.assert_close(found.exp(), expected, rtol=1e-4, atol=1e-6)


def test_rivals_learn_as_many_numbers_as_their_formulas_have(fitted: dict[str, Fitted]) -> None:
    learned = {name: method.learned for name, method in fitted.items() if method.learned}
    expected = {
        "vector_scaling": 20,
        "svs": 21,
        "sms": 111,
        "dirichlet": 110,
        "ets": 3,
        "density_kth": 8,
        "tta_mirror": 1,
    }
    assert {name: learned[name] for name in expected} == expected


def test_the_seed_reaches_views_and_probes(network: nn.Module, prepared: Prepared) -> None:
    data = sample_data()
    other = prepare(network, data.train, data.holdout, 3, Clock(torch.device("cpu")), ("jitter", "paper"))
    for method, arguments in (
        ("lates_jitter_1", {"views": "jitter", "passes": 2, "budget": 0.01}),
        ("lates_paper", {"views": "flip", "settings": lates.PAPER_LITERAL}),
    ):
        arguments = {"settings": PAPER_BLOCKS, **arguments}
        calibrated = lates.calibrate(
            network, train=Batches(data.train), holdout=Batches(data.holdout), seed=3, progress=False, **arguments
        )
        weights = METHODS[method](other).weights
        assert {name: weights[name] for name in calibrated.weights} == pytest.approx(calibrated.weights, rel=1e-3)
        assert weights != pytest.approx(METHODS[method](prepared).weights, rel=1e-2)


def test_probe_accuracies_are_in_depth_order_with_the_head(network: nn.Module, prepared: Prepared) -> None:
    test = sample_data().test
    accuracies = measure_probes(prepared, prepared.readers["plain"](test, {}))
    assert list(accuracies) == ["layer1.0", "layer2.0", "layer3.0", HEAD]
    assert accuracies[HEAD] == pytest.approx(accuracy_of(network, test))
    assert all(0 < value < 1 for value in accuracies.values())
