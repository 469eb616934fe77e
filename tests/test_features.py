"""One reading of a loader: the right rows, whatever the loader and the network look like, and no trace left on either."""

import copy
import gc
import os
import random
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import lates
from lates.batches import IGNORED
from lates.features import extract_samples
from lates.progress import shown

CLASSES = 3


class Network(nn.Module):
    """Convolutions with batch norm, in-place activations and dropout; blocks body.2, body.5, body.9 (rule 2)."""

    def __init__(self, inputs: int = 2, logits: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.5),
        )  # fmt: skip
        self.last = nn.Linear(6, logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.body(images))


def network(seed: int = 0, logits: int = CLASSES) -> Network:
    """With random weights and batch-norm statistics."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = Network(logits=logits)
        for _ in range(3):
            model(torch.randn(16, 2, 6, 6))
    return model.eval()


def draw(n: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2, 6, 6, generator=generator), torch.randint(CLASSES, (n,), generator=generator)


def loader(n: int = 20, batch_size: int = 8, seed: int = 0) -> DataLoader:
    """The last batch is smaller."""
    return DataLoader(TensorDataset(*draw(n, seed)), batch_size=batch_size)


def same(a: lates.Features, b: lates.Features) -> bool:
    return (
        list(a.blocks) == list(b.blocks)
        and all(torch.equal(a.blocks[name], b.blocks[name]) for name in a.blocks)
        and all(torch.equal(a.centre[name], b.centre[name]) for name in a.blocks)
        and all(torch.equal(a.deviation[name], b.deviation[name]) for name in a.blocks)
        and torch.equal(a.logits, b.logits)
        and torch.equal(a.labels, b.labels)
        and a.poolings == b.poolings
    )


# What is recorded


def test_rows_hold_what_the_blocks_put_out() -> None:
    model = network()
    images, labels = draw()
    features = lates.extract(model, loader())
    assert list(features.blocks) == lates.list_blocks(model) == ["body.2", "body.5", "body.9"]
    with torch.no_grad():
        first, second = model.body[:3](images), model.body[:6](images)
        assert torch.allclose(features.logits, model(images), atol=1e-6)
        assert torch.allclose(features.blocks["body.9"], model.body[:10](images), atol=1e-6)
    for name, output in {"body.2": first, "body.5": second}.items():
        cells = output.unflatten(2, (2, 3)).unflatten(4, (2, 3)).mean((3, 5)).flatten(1)
        assert torch.allclose(features.blocks[name], cells, atol=1e-6)
    assert torch.equal(features.labels, labels)
    assert (features.rows, features.classes, features.mapped, features.passes) == (20, CLASSES, False, 1)
    assert features.parameters == sum(p.numel() for p in model.parameters())
    assert {features.logits.dtype, *(values.dtype for values in features.blocks.values())} == {torch.float32}


def test_an_in_place_activation_does_not_reach_back_into_the_features() -> None:
    features = lates.extract(network(), loader(), blocks=["body.1"])
    assert bool((features.blocks["body.1"] < 0).any())


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_how_rows_are_batched_changes_nothing_and_moments_are_those_of_all_rows(sizes: list[int]) -> None:
    images, labels = draw(sum(sizes))
    model = network()
    whole = lates.extract(model, [(images, labels)])
    parts = lates.extract(model, list(zip(images.split(sizes), labels.split(sizes), strict=True)))
    for name, values in parts.blocks.items():
        assert torch.allclose(values, whole.blocks[name], atol=1e-6)
        exact = values.double()
        assert torch.allclose(parts.centre[name], exact.mean(0), atol=1e-12)
        deviation = exact.std(0, correction=0)
        assert torch.allclose(parts.deviation[name], torch.where(deviation > 1e-6, deviation, 1.0), rtol=1e-6, atol=1e-7)


def test_constant_features_survive_standardisation() -> None:
    model = network()
    with torch.no_grad():
        model.body[8].weight.zero_()
        model.body[8].bias.copy_(torch.tensor([0.0, 1e-8, 0.5, -3.0, 100.0, 1e-30]))
    features = lates.extract(model, loader(), blocks=["body.8"])
    assert features.deviation["body.8"].tolist() == [1.0] * 6
    standardised = (features.blocks["body.8"] - features.centre["body.8"]) / features.deviation["body.8"]
    assert float(standardised.abs().max()) < 1e-6


def test_moments_of_features_far_from_zero_do_not_cancel() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(2, 3)).eval()
    rows = 1e4 + torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    features = lates.extract(model, DataLoader(TensorDataset(rows, torch.zeros(500).long()), 64), blocks=["0"])
    assert torch.allclose(features.deviation["0"], rows.double().std(0, correction=0), rtol=1e-9)


def test_rows_without_a_label_are_left_out() -> None:
    images, labels = draw()
    marked = torch.where(torch.arange(20) % 3 == 0, IGNORED, labels)
    kept = marked != IGNORED
    features = lates.extract(network(), DataLoader(TensorDataset(images, marked), 7))
    assert same(features, lates.extract(network(), [(images[kept], labels[kept])])) or features.rows == int(kept.sum())
    assert torch.equal(features.labels, labels[kept])
    with torch.no_grad():
        assert torch.allclose(features.logits, network()(images[kept]), atol=1e-6)
    with pytest.raises(ValueError, match=f"every label is {IGNORED}"):
        lates.extract(network(), [(images, torch.full((20,), IGNORED))])


def test_like_takes_blocks_and_poolings_from_earlier_features() -> None:
    model = network()
    train = lates.extract(model, loader(), blocks=["body.5"])
    held = lates.extract(model, loader(seed=1), like=train)
    assert held.poolings == train.poolings
    assert same(held, lates.extract(model, loader(seed=1), blocks=["body.5"]))
    with pytest.raises(ValueError, match=r"Both blocks= and like= were given"):
        lates.extract(model, loader(), blocks=["body.5"], like=train)
    with pytest.raises(ValueError, match=r'Unknown block "body\.5"\. Blocks of this model: 0\.'):
        lates.extract(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)), loader(), like=train)


def test_several_models_are_read_together_and_dropout_draws_each_time_anew() -> None:
    one, two = network(0), network(1)
    together = extract_samples([one, two], loader())
    assert same(together[0], lates.extract(one, loader()))
    assert same(together[1], lates.extract(two, loader()))
    first, second = extract_samples([one, one], loader(), dropout=True)
    assert not torch.equal(first.logits, second.logits)
    assert torch.equal(first.blocks["body.9"], second.blocks["body.9"]), "before the dropout nothing differs"


# Networks and inputs of other kinds


class Returning(nn.Module):
    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.form = network(), form

    def forward(self, images: Tensor, twice: Tensor | None = None) -> Any:
        return self.form(self.inner(images if twice is None else images + twice))


@pytest.mark.parametrize("form", [lambda z: (z, None), lambda z: {"logits": z}, lambda z: [z]])
def test_what_networks_return(form: Callable[[Tensor], Any]) -> None:
    features = lates.extract(Returning(form).eval(), loader())
    assert torch.equal(features.logits, lates.extract(network(), loader()).logits)


@pytest.mark.parametrize(
    "pack",
    [
        lambda x, y: (x / 2, x / 2, y),
        lambda x, y: ((x / 2, x / 2), y),
        lambda x, y: {"images": x / 2, "twice": x / 2, "labels": y},
        lambda x, y: ({"images": x / 2, "twice": x / 2}, y),
        lambda x, y: (x.numpy(), y.numpy()),
    ],
)
def test_what_loaders_yield(pack: Callable[[Tensor, Tensor], Any]) -> None:
    features = lates.extract(Returning(lambda z: z).eval(), [pack(x, y) for x, y in loader()])
    assert torch.equal(features.logits, lates.extract(network(), loader()).logits)


def test_one_logit_gives_two_classes() -> None:
    images, labels = draw(17)
    model = network(logits=1)

    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(images).squeeze()

    for network_of_one in (model, Squeezed().eval()):
        features = lates.extract(network_of_one, DataLoader(TensorDataset(images, labels % 2), 8))
        with torch.no_grad():
            assert torch.allclose(features.logits[:, 1:], model(images), atol=1e-6)
        assert not features.logits[:, 0].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_networks_of_other_dtypes_keep_them(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    images, labels = draw()
    features = lates.extract(model, [(images.to(dtype), labels)], views="jitter", passes=2)
    assert features.logits.dtype == torch.float32
    assert {p.dtype for p in model.parameters()} == {dtype}
    plain = lates.extract(model, [(images.to(dtype), labels)])
    assert torch.allclose(plain.logits, lates.extract(network(), loader()).logits, atol=0.05)


def test_uint8_images_get_views_too() -> None:
    class Normalising(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(images / 255 - 0.5)

    images, labels = draw()
    pixels = (images.sigmoid() * 255).to(torch.uint8)
    model = Normalising().eval()
    plain, viewed = (lates.extract(model, [(pixels, labels)], views=views) for views in (None, "auto"))
    assert viewed.rows == 20
    assert not torch.equal(plain.logits, viewed.logits)


def test_a_network_that_writes_into_its_inputs_sees_them_fresh_each_time() -> None:
    class Careless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(images.mul_(0.5))

    batches = [(images, labels) for images, labels in loader()]
    halved = lates.extract(network(), [(images / 2, labels) for images, labels in batches]).logits
    for features in extract_samples([Careless().eval()] * 2, batches):
        assert torch.allclose(features.logits, halved, atol=1e-6)


def test_a_shared_activation_and_a_reused_block() -> None:
    relu = nn.ReLU()
    step = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model = nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu, step, step, nn.Linear(4, 3)).eval()
    batches = [(torch.randn(6, 4), torch.arange(6) % 3)]
    assert list(lates.extract(model, batches).blocks) == ["0", "2"]
    for name in ("1", "4", "4.0"):
        with pytest.raises(ValueError, match=rf'Block "{name}" runs 2 times in a forward pass; expected exactly once'):
            lates.extract(model, batches, blocks=["0", name])


def test_a_block_that_is_never_called() -> None:
    model = network()
    model.spare = nn.Linear(4, 4)
    assert list(lates.extract(model, loader()).blocks) == ["body.2", "body.5", "body.9"]
    with pytest.raises(ValueError, match=r'Block "spare" is never called'):
        lates.extract(model, loader(), blocks=["spare"])
    with pytest.raises(ValueError, match=r'Block "body\.3\.list" is never|Unknown block'):
        lates.extract(model, loader(), blocks=["body.3.list"])


def test_where_no_block_can_be_recorded_a_warning_says_why() -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, layer, nn.Linear(4, 3)).eval()
    with pytest.warns(UserWarning, match=r'No block is left to probe.*Block "0" runs 2 times') as caught:
        features = lates.extract(model, [(torch.randn(6, 4), torch.arange(6) % 3)])
    assert features.blocks == {}
    assert caught[0].filename == __file__


def test_a_block_called_only_for_some_batches_is_an_error() -> None:
    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x) if len(x) == 6 else x)

    batches = [(torch.randn(n, 4), torch.zeros(n).long()) for n in (6, 5)]
    with pytest.raises(ValueError, match=r'Block "a" is never called'):
        lates.extract(Fickle().eval(), batches)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
def test_padding_further_changes_no_feature_of_pytorch_s_encoder(batch_first: bool, by_name: bool) -> None:
    """With grad off the encoder turns padded batches into nested tensors; with it on it does not."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=batch_first)
            self.last = nn.Linear(8, CLASSES)

        def forward(self, ids: Tensor, padding: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
            padding = attention_mask == 0 if attention_mask is not None else padding
            x = self.embed(ids) if batch_first else self.embed(ids).transpose(0, 1)
            x = self.encoder(x, src_key_padding_mask=padding)
            return self.last(x[:, 0] if batch_first else x[0])

    def batch(extra: int) -> Any:
        ids = torch.cat([tokens, torch.ones(6, extra).long()], dim=1)
        mask = torch.arange(5 + extra) < torch.tensor([5, 1, 2, 3, 4, 5])[:, None]
        return {"ids": ids, "attention_mask": mask.long(), "labels": labels} if by_name else (ids, ~mask, labels)

    tokens, labels = torch.randint(20, (6, 5), generator=torch.Generator().manual_seed(0)), torch.arange(6) % CLASSES
    model = Encoder().eval()
    short, long = (lates.extract(model, [batch(extra)]) for extra in (0, 7))
    assert list(short.blocks) == ["encoder.layers.0", "encoder.layers.1"]
    for name, values in short.blocks.items():
        assert torch.allclose(values, long.blocks[name], atol=1e-5)
    calibrated = lates.calibrate(model, train=[batch(0)], holdout=[batch(2)], budget=None, progress=False)
    given = {"ids": batch(2)["ids"], "attention_mask": batch(2)["attention_mask"]} if by_name else batch(2)[:2]
    further = {"ids": batch(9)["ids"], "attention_mask": batch(9)["attention_mask"]} if by_name else batch(9)[:2]
    assert torch.allclose(calibrated.predict_proba(given), calibrated.predict_proba(further), atol=1e-5)
    with_grad = calibrated(**given) if by_name else calibrated(*given)
    assert torch.allclose(with_grad.softmax(1), calibrated.predict_proba(given), atol=1e-5)


# Loaders of other kinds


class Endless(IterableDataset):
    """Knows no length, though DataLoader has a `__len__`."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(*draw(), strict=True)


class Arrays(Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return draw()[0][index].numpy(), int(draw()[1][index])


@pytest.mark.parametrize(("other", "total"), [(DataLoader(Endless(), 8), None), (DataLoader(Arrays(), 8), 6)])
def test_loaders_without_a_length_and_of_arrays(other: DataLoader, total: int | None) -> None:
    calls: list[tuple[str, int, int | None]] = []
    features = lates.extract(network(), other, passes=2, progress=lambda *call: calls.append(call))
    once = lates.extract(network(), loader())
    assert torch.equal(features.logits, once.logits.repeat(2, 1))
    assert calls == [("reading loader", done, total) for done in range(1, 7)]


def test_the_random_order_of_a_loader_follows_the_seed_alone() -> None:
    shuffled = DataLoader(TensorDataset(*draw()), batch_size=8, shuffle=True)
    torch.manual_seed(1)
    first = lates.extract(network(), shuffled, seed=5)
    torch.manual_seed(2)
    assert same(first, lates.extract(network(), shuffled, seed=5))
    assert not torch.equal(first.labels, lates.extract(network(), shuffled, seed=6).labels)


# Views and passes


def test_each_pass_draws_fresh_views_by_the_seed() -> None:
    model = network()
    one, two = (lates.extract(model, loader(), views="jitter", passes=passes, seed=3) for passes in (1, 2))
    assert torch.equal(two.logits[:20], one.logits)
    assert not torch.equal(two.logits[20:], one.logits)
    assert torch.equal(two.labels, one.labels.repeat(2))
    assert (two.rows, two.passes) == (40, 2)
    assert same(two, lates.extract(model, loader(), views="jitter", passes=2, seed=3))
    assert not torch.equal(one.logits, lates.extract(model, loader(), views="jitter", seed=4).logits)


@pytest.mark.parametrize("source", ["torch", "numpy", "python"])
def test_the_user_s_view_is_applied_to_fresh_inputs_and_follows_the_seed(source: str) -> None:
    draws = {"torch": lambda: float(torch.rand(())), "numpy": np.random.rand, "python": random.random}

    def dim(images: Tensor) -> Tensor:
        return images.mul_(0.5 + draws[source]())

    batches = [(images, labels) for images, labels in loader()]
    before = copy.deepcopy(batches)
    first = lates.extract(network(), batches, views=dim, passes=2, seed=1)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, before, strict=True))
    assert not torch.equal(first.logits[:20], first.logits[20:])
    assert same(first, lates.extract(network(), batches, views=dim, passes=2, seed=1))


def test_without_images_auto_reads_once() -> None:
    batches = [(torch.randn(6, 4), torch.arange(6) % 3)]
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    features = lates.extract(model, batches, views="auto", passes=3)
    assert (features.rows, features.passes) == (6, 1)
    assert lates.extract(model, batches, views=None, passes=3).rows == 18, "the loader itself may draw views"


# No trace


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Asserts at the end, also after an exception, that nothing about the model or the random state has changed."""

    def state() -> dict[str, Any]:
        parameters = list(model.named_parameters())
        return {
            "modules": [id(part) for part in model.modules()],
            "classes": [type(part) for part in model.modules()],
            "flags": [part.training for part in model.modules()],
            "hooks": [
                {key: dict(value) for key, value in vars(part).items() if "hooks" in key and isinstance(value, dict)}
                for part in model.modules()
            ],
            "tensors": {name: (id(t), t.dtype, t.device, t._version) for name, t in [*parameters, *model.named_buffers()]},
            "values": {name: value.tolist() for name, value in model.state_dict().items()},
            "gradients": {name: (id(p.grad), None if p.grad is None else p.grad.tolist()) for name, p in parameters},
            "frozen": {name: p.requires_grad for name, p in parameters},
            "python": random.getstate(),
            "numpy": str(np.random.get_state()),
            "torch": torch.get_rng_state().tolist(),
            "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        }

    before = state()
    try:
        yield
    finally:
        after = state()
        assert [key for key in before if before[key] != after[key]] == []


def awkward_network() -> Network:
    """In train mode but for one frozen norm, with gradients, a frozen parameter and a hook of the user's."""
    model = network().train()
    model(draw()[0]).sum().backward()
    model.body[1].eval()
    model.last.bias.requires_grad_(False)
    model.body[0].register_forward_hook(lambda module, inputs, output: None)
    return model


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")])
def test_extraction_leaves_no_trace_in_any_mode_of_the_caller(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    model = awkward_network()
    with mode(), untouched(model):
        features = lates.extract(model, loader(), views="jitter", passes=2)
        extract_samples([model, model], loader(), dropout=True)
    assert not features.logits.is_inference()
    assert not any(tensor.is_inference() for tensor in [*features.blocks.values(), *features.centre.values()])
    expected = lates.extract(network(), loader(), views="jitter", passes=2)
    assert torch.allclose(features.logits, expected.logits, atol=0.05 if "lambda" in repr(mode) else 1e-6)


def test_calibration_leaves_no_trace() -> None:
    model = awkward_network()
    with untouched(model):
        lates.calibrate(model, train=loader(40), holdout=loader(30, seed=1), progress=False)


def fail_after(batches: int) -> Iterable[Any]:
    class Failing:
        def __iter__(self) -> Iterator[Any]:
            for done, batch in enumerate(loader()):
                if done == batches:
                    raise OSError("the disk is gone")
                yield batch

    return Failing()


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_failing_loader_leaves_no_trace(batches: int) -> None:
    model = awkward_network()
    with untouched(model), pytest.raises(OSError, match="the disk is gone"):
        lates.extract(model, fail_after(batches), views=lambda images: images * random.random(), memory=0)


def test_a_module_that_writes_into_its_buffers_writes_into_a_copy() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Tensor
            self.register_buffer("calls", torch.zeros(()))
            self.inner = network()

        def forward(self, images: Tensor) -> Tensor:
            self.calls += 1
            return self.inner(images)

    model = Counting().eval()
    with untouched(model):
        lates.extract(model, loader())


def test_another_device_gets_its_own_copy() -> None:
    """The `meta` device stands for any other one: there is no second one here."""
    model = network()
    with untouched(model), pytest.raises((NotImplementedError, RuntimeError)):
        lates.extract(model, loader(), device="meta")
    assert same(lates.extract(model, loader(), device="cpu"), lates.extract(model, loader()))


# Memory


@pytest.mark.parametrize("memory", [0, 1000, 3000])
def test_spilled_features_are_bitwise_the_same_and_their_files_nameless(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[list[Path]] = []
    model = network()
    plain = lates.extract(model, loader(), views="shift", passes=2)
    spilled = lates.extract(
        model, loader(), views="shift", passes=2, memory=memory, progress=lambda *_: seen.append(list(tmp_path.iterdir()))
    )
    assert spilled.mapped
    assert not plain.mapped
    assert same(spilled, plain)
    if sys.platform == "linux":
        assert not any(seen)
        assert open_files(tmp_path) > 0
        del spilled
        gc.collect()
        assert open_files(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def open_files(folder: Path) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(os.readlink(link).startswith(str(folder)) for link in links if link.is_symlink())


def test_an_interrupted_spill_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(OSError, match="disk"):
            lates.extract(network(), fail_after(2), memory=0)
        gc.collect()
    assert list(tmp_path.iterdir()) == []
    if sys.platform == "linux":
        assert open_files(tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory from /proc")
def test_memory_stays_bounded_when_spilling() -> None:
    """160 MB of features under a limit of 8 MB: what is resident and private grows by little more than the limit."""
    model = nn.Sequential(nn.Linear(4, 20_000), nn.Linear(20_000, 3, bias=False)).eval()
    batch = (torch.randn(50, 4), torch.zeros(50).long())
    peaks: list[int] = []
    before = private_bytes()
    features = lates.extract(
        model, [batch] * 40, blocks=["0"], memory=8 << 20, progress=lambda *_: peaks.append(private_bytes())
    )
    assert features.blocks["0"].numel() * 4 == 160_000_000
    assert max(peaks) - before < 60 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon")


# Bad input


def broken(part: str, value: float) -> Network:
    model = network()
    with torch.no_grad():
        model.get_submodule(part).bias[0] = value  # pyright: ignore[reportIndexIssue]
    return model


@pytest.mark.parametrize(("value", "fault"), [(torch.nan, "NaN"), (torch.inf, r"\+inf")])
def test_logits_without_a_softmax_are_an_error(value: float, fault: str) -> None:
    model = broken("last", value)
    with untouched(model), pytest.raises(ValueError, match=rf"the network's logits hold {fault} in row 0 \(20 of 20"):
        lates.extract(model, loader())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_blocks_that_put_out_nan_are_named(value: float) -> None:
    with pytest.raises(ValueError, match=r'Block "body\.2" puts out NaN or infinite values\. Leave it out'):
        lates.extract(broken("body.0", value), loader())


def test_labels_that_the_network_has_no_logit_for_are_an_error() -> None:
    images, labels = draw()
    for wrong in (CLASSES, -1):
        with pytest.raises(ValueError, match=rf"labels hold {wrong} in row .*expected 0 to {CLASSES - 1}"):
            lates.extract(network(), [(images, labels.index_fill(0, torch.tensor([4]), wrong))])
    with pytest.raises(ValueError, match=r"labels hold 4 .*expected 0 to 2"):
        lates.calibrate(network(), train=loader(), holdout=[(images, labels + 2)], progress=False)


def test_rows_that_do_not_match_their_labels_are_an_error() -> None:
    images, labels = draw()
    with pytest.raises(ValueError, match="A loader batch has 19 labels, but the network gave 20 rows of logits"):
        lates.extract(network(), [(images, labels)] + [(images, labels[:19])])
    with pytest.raises(ValueError, match="has 20 labels, but the network gave 40 rows"):
        lates.extract(network(), loader(batch_size=20), views=lambda images: images.repeat(2, 1, 1, 1))


def test_dense_outputs_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 3, 1)).eval()
    with untouched(model), pytest.raises(ValueError, match="a prediction per pixel or token"):
        lates.extract(model, loader())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"passes": 0}, ValueError, "passes=0: expected at least 1"),
        ({"views": "blur"}, ValueError, 'Unknown views="blur"'),
        ({"blocks": ["layer9"]}, ValueError, r'Unknown block "layer9"\. Blocks of this model: body\.2, body\.5, body\.9'),
        ({"loader": []}, ValueError, "The loader loader yielded no batch"),
        ({"loader": iter([])}, TypeError, "can be read only once"),
        ({"loader": [draw()[0]]}, ValueError, "holds no labels"),
    ],
)
def test_other_bad_arguments(change: dict[str, Any], error: type[Exception], message: str) -> None:
    model = network().train()
    with untouched(model), pytest.raises(error, match=message):
        lates.extract(model, **{"loader": loader(), **change})


def test_bad_blocks_are_found_before_the_loader_is_read() -> None:
    with pytest.raises(ValueError, match="Unknown block"):
        lates.extract(network(), fail_after(0), blocks=["layer9"])


def test_calibrate_refuses_rows_that_trained_the_probes_and_loaders_read_once() -> None:
    with pytest.raises(ValueError, match="train and holdout read the same TensorDataset"):
        both = loader()
        lates.calibrate(network(), train=both, holdout=both, progress=False)
    with pytest.raises(TypeError, match="The train loader is a generator"):
        lates.calibrate(network(), train=(batch for batch in loader()), holdout=loader(), progress=False)


def test_a_network_that_ends_in_softmax_is_warned_about() -> None:
    model = nn.Sequential(network(), nn.Softmax(1)).eval()
    with pytest.warns(UserWarning, match="look like probabilities"):
        lates.calibrate(model, train=loader(60), holdout=loader(30, seed=1), progress=False)


# Settings and progress


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pooling": "gird"}, "pooling='gird': expected one of 'grid', 'flat'"),
        ({"views": "blur"}, "views='blur': expected one of None, 'flip', 'shift', 'jitter'"),
        ({"grid": 0}, "grid=0: expected at least 1"),
        ({"passes": 0}, "passes=0: expected at least 1"),
        ({"tolerance": -1.0}, "tolerance=-1.0: expected a number that is not negative"),
        ({"regularise": float("nan")}, "regularise=nan"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lates.Settings(**change)


def test_flat_pooling_takes_its_width_from_the_budget() -> None:
    model = network()
    features = lates.extract(model, loader(), budget=1.0, settings=lates.PAPER)
    share = features.parameters / 3 / CLASSES
    widths = {name: values.shape[1] for name, values in features.blocks.items()}
    assert widths == {"body.2": int(share) - 1, "body.5": int(share) - 1, "body.9": 6}
    with pytest.warns(UserWarning, match=r"No block is left to probe.*budget=1e-06 leaves not one feature per block"):
        assert lates.extract(model, loader(), budget=1e-6, settings=lates.PAPER).blocks == {}


def test_calibrate_reports_every_stage_with_its_total() -> None:
    calls: list[tuple[str, int, int | None]] = []
    train, holdout = loader(40), loader(30, seed=1)
    lates.calibrate(network(), train=train, holdout=holdout, passes=2, progress=lambda *call: calls.append(call))
    for stage, total in {"reading train": 2 * len(train), "reading holdout": len(holdout)}.items():
        assert [call for call in calls if call[0] == stage] == [(stage, i, total) for i in range(1, total + 1)]


def test_progress_is_silent_when_asked_and_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    def callback(stage: str, done: int, total: int | None) -> None: ...

    for given, expected in {False: None, True: None, None: None, callback: callback}.items():
        with shown(given) as report:
            assert report is expected
    assert capsys.readouterr() == ("", "")


def test_progress_draws_bars_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with shown(True) as report:
        assert report is not None
        report("reading train", 1, 4)
        report("reading train", 4, 4)
        report("reading holdout", 1, None)
    drawn = capsys.readouterr()
    assert drawn.out == ""
    assert "reading train" in drawn.err
    assert "4/4" in drawn.err
