"""One reading of a loader gives the right rows, whatever the network looks like."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lates
from lates.network import IGNORED, Ensemble
from tests import processes
from tests.networks import CLASSES, draw, extract_samples, loader, network, random_rows, same


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


def test_a_network_that_reuses_the_memory_of_its_logits() -> None:
    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.logits = torch.empty(5, CLASSES)

        def forward(self, images: Tensor) -> Tensor:
            return self.logits.copy_(self.inner(images))

    model = Reusing()
    images, labels = draw()
    features = lates.extract(model, DataLoader(TensorDataset(images, labels), batch_size=5))
    with torch.no_grad():
        assert torch.allclose(features.logits, model.inner(images), atol=1e-6)


@pytest.mark.parametrize("pooling", ["grid", "flat"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (4, 2, 2), (4, 1, 1), (4, 2)])
def test_a_block_that_reuses_the_memory_of_its_output(shape: tuple[int, ...], pooling: Literal["grid", "flat"]) -> None:
    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = torch.empty(5, *shape)

        def forward(self, rows: Tensor) -> Tensor:
            return self.output[: len(rows)].copy_(rows)

    model = nn.Sequential(OrderedDict(body=Reusing(), flat=nn.Flatten(), fc=nn.Linear(math.prod(shape), CLASSES)))
    rows = torch.arange(20 * math.prod(shape), dtype=torch.float32).view(20, *shape)
    batches = list(zip(rows.split(5), (torch.arange(20) % CLASSES).split(5), strict=True))
    features = lates.extract(model, batches, ["body"], settings=replace(lates.DEFAULT, pooling=pooling))
    (values,) = features.blocks.values()
    assert torch.allclose(values.mean(1), rows.flatten(1).mean(1))


def test_rows_without_a_label_are_left_out() -> None:
    images, labels = draw()
    marked = torch.where(torch.arange(20) % 3 == 0, IGNORED, labels)
    kept = marked != IGNORED
    features = lates.extract(network(), DataLoader(TensorDataset(images, marked), 7))
    assert torch.equal(features.labels, labels[kept])
    assert all(len(values) == features.rows == int(kept.sum()) for values in features.blocks.values())
    with torch.no_grad():
        assert torch.allclose(features.logits, network()(images[kept]), atol=1e-6)
    with pytest.raises(ValueError, match=f"every label is {IGNORED}"):
        lates.extract(network(), [(images, torch.full((20,), IGNORED))])


def test_like_takes_blocks_and_poolings_from_earlier_features() -> None:
    model = network()
    train = lates.extract(model, loader(), blocks=["body.5"])
    holdout = lates.extract(model, loader(seed=1), like=train)
    assert holdout.poolings == train.poolings
    assert same(holdout, lates.extract(model, loader(seed=1), blocks=["body.5"]))
    with pytest.raises(ValueError, match=r"Both blocks= and like= were given"):
        lates.extract(model, loader(), blocks=["body.5"], like=train)
    with pytest.raises(ValueError, match=r'Unknown block "body\.5"\. Blocks of this model: none found\.'):
        lates.extract(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)), loader(), like=train)


def test_several_models_are_read_together_and_dropout_draws_each_time_anew() -> None:
    one, two = network(0), network(1)
    together = extract_samples(Ensemble((one, two)), loader())
    assert same(together[0], lates.extract(one, loader()))
    assert same(together[1], lates.extract(two, loader()))
    first, second = extract_samples(Ensemble((one,), samples=2, dropout=True), loader())
    assert not torch.equal(first.logits, second.logits)
    assert torch.equal(first.blocks["body.9"], second.blocks["body.9"]), "before the dropout nothing differs"


def test_logits_that_are_not_to_be_kept_leave_their_width() -> None:
    kept = lates.extract(network(), loader())
    (without,) = extract_samples(Ensemble((network(),)), loader(), keep_logits=False)
    assert list(without.logits.shape) == [0, 3]
    assert (without.rows, without.classes) == (kept.rows, kept.classes)
    assert all(torch.equal(without.blocks[name], kept.blocks[name]) for name in kept.blocks)


# Networks and inputs of other kinds


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: Tensor, twice: Tensor | None = None) -> Any:
        return self.inner(images if twice is None else images + twice), None


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
def test_networks_get_what_loaders_yield(pack: Callable[[Tensor, Tensor], Any]) -> None:
    features = lates.extract(TwoInputs().eval(), [pack(x, y) for x, y in loader()])
    assert torch.equal(features.logits, lates.extract(network(), loader()).logits)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_networks_of_other_dtypes_keep_them(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    images, labels = draw()
    features = lates.extract(model, [(images.to(dtype), labels)], views="jitter", passes=2)
    assert features.logits.dtype == torch.float32
    assert {p.dtype for p in model.parameters()} == {dtype}
    plain = lates.extract(model, [(images.to(dtype), labels)])
    assert torch.allclose(plain.logits, lates.extract(network(), loader()).logits, atol=0.05)


@pytest.mark.parametrize("copies_for", [None, "holdout_views"])
def test_all_passes_read_views_or_all_but_the_first(copies_for: str | None) -> None:
    (features,) = extract_samples(
        Ensemble((network(),)), loader(), [], views=lambda images: 2 * images, passes=2, copies_for=copies_for
    )
    first, second = features.logits.split(20)
    images, _ = draw()
    with torch.no_grad():
        plain, viewed = network()(images), network()(2 * images)
    torch.testing.assert_close(first, plain if copies_for else viewed)
    torch.testing.assert_close(second, viewed)


def test_a_network_that_writes_into_its_inputs_sees_them_fresh_each_time() -> None:
    class Careless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(images.mul_(0.5))

    batches = [(images, labels) for images, labels in loader()]
    halved = lates.extract(network(), [(images / 2, labels) for images, labels in batches]).logits
    for features in extract_samples(Ensemble((Careless().eval(),), samples=2), batches):
        assert torch.allclose(features.logits, halved, atol=1e-6)


def test_a_shared_activation_and_a_reused_block() -> None:
    relu = nn.ReLU()
    step = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model = nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu, step, step, nn.Linear(4, 3)).eval()
    batches = [(torch.randn(6, 4), torch.arange(6) % 3)]
    with pytest.warns(UserWarning, match=r"These blocks get no probe.*run several times in a forward pass: 4\.0, 4\.1\."):
        assert list(lates.extract(model, batches).blocks) == ["0", "2"]
    for name in ("1", "4", "4.0"):
        with pytest.raises(ValueError, match=rf'Block "{name}" runs 2 times in a forward pass; to get a probe it must'):
            lates.extract(model, batches, blocks=["0", name])


def test_a_block_that_is_never_called() -> None:
    model = network()
    model.spare = nn.Linear(4, 4)
    assert lates.list_blocks(model)[-1] == "last", "it cannot be known from the tree that `spare` is not the head"
    assert list(lates.extract(model, loader()).blocks) == ["body.2", "body.5", "body.9"]
    with pytest.raises(ValueError, match=r'Block "spare" is never called'):
        lates.extract(model, loader(), blocks=["spare"])


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


@pytest.mark.parametrize("size", [1, 5])
def test_as_many_rows_as_tokens_are_told_apart(size: int) -> None:
    class SequenceFirst(nn.Module):
        """Runs on one row or more, as many networks do: of no rows the last shape is unknown."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, sequences: Tensor) -> Tensor:
            tokens = self.layer(sequences.transpose(0, 1))
            return self.head(tokens.mean(0)).view(len(sequences), -1)

    model, sequences = SequenceFirst().eval(), torch.randn(size, size, 4, generator=torch.Generator().manual_seed(0))
    features = lates.extract(model, [(sequences, torch.arange(size) % 3)], blocks=["layer"])
    with torch.no_grad():
        assert torch.allclose(features.blocks["layer"], model.layer(sequences).mean(1), atol=1e-6)


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
    assert list(short.blocks) == [f"encoder.layers.{layer}" for layer in range(3)]
    for name, values in short.blocks.items():
        assert torch.allclose(values, long.blocks[name], atol=1e-5)
    calibrated = lates.calibrate(model, train=[batch(0)], holdout=[batch(2)], budget=None, progress=False)
    given = {"ids": batch(2)["ids"], "attention_mask": batch(2)["attention_mask"]} if by_name else batch(2)[:2]
    further = {"ids": batch(9)["ids"], "attention_mask": batch(9)["attention_mask"]} if by_name else batch(9)[:2]
    assert torch.allclose(calibrated.predict_proba(given), calibrated.predict_proba(further), atol=1e-5)
    with_grad = calibrated(**given) if by_name else calibrated(*given)
    assert torch.allclose(with_grad.softmax(1), calibrated.predict_proba(given), atol=1e-5)


def test_flat_pooling_takes_its_width_from_the_budget() -> None:
    model = network()
    features = lates.extract(model, loader(), budget=1.0, settings=lates.PAPER_LITERAL)
    share = features.parameters / 3 / CLASSES
    widths = {name: values.shape[1] for name, values in features.blocks.items()}
    assert widths == {"body.2": int(share) - 1, "body.5": int(share) - 1, "body.9": 6}
    with pytest.warns(UserWarning, match=r"No block is left to probe.*budget=1e-06 leaves not one feature per block"):
        assert lates.extract(model, loader(), budget=1e-6, settings=lates.PAPER_LITERAL).blocks == {}


class InnerAttention(nn.Module):
    """Takes and gives [n, tokens, c], though the attention inside is sequence-first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(8, 2), nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        turned = tokens.transpose(0, 1)
        return tokens + self.out(self.attention(turned, turned, turned)[0].transpose(0, 1))


def test_rows_are_not_taken_for_tokens_when_there_are_as_many() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(InnerAttention(), InnerAttention(), InnerAttention())
    model = nn.Sequential(body, nn.Flatten(), nn.Linear(16 * 8, 3))
    loader = DataLoader(random_rows(40, 16, 8), batch_size=16)
    features = lates.extract(model, loader)
    alone = lates.extract(model, DataLoader(random_rows(40, 16, 8), batch_size=7))
    for name, values in features.blocks.items():
        torch.testing.assert_close(values, alone.blocks[name], rtol=1e-4, atol=1e-5)


def test_sixteen_bits_halve_the_features_and_change_no_log_loss() -> None:
    sizes, fits = [], []
    for float16 in (False, True):
        train, holdout = (
            extract_samples(Ensemble((network(),)), batches, float16=float16)[0] for batches in processes.loaders().values()
        )
        probes = {name: trained.probe for name, trained in lates.train_probes(train, holdout).items()}
        fits.append(lates.fit_stack(lates.member_logits(probes, holdout), holdout.labels))
        sizes.append(sum(values.nbytes for values in train.blocks.values()))
        assert holdout.logits.dtype == torch.float32
    assert sizes[0] == 2 * sizes[1]
    assert fits[0].nll < fits[0].nll_temperature - 0.1, "a probe has a say"
    assert fits[1].nll == pytest.approx(fits[0].nll, abs=1e-3)


def test_features_beyond_the_range_of_sixteen_bits_keep_thirty_two_and_all_are_the_same_on_disk() -> None:
    images, labels = draw()
    batches = [(images, labels), (1e8 * images, labels)]
    kept, spilled = (
        extract_samples(Ensemble((network(),)), batches, memory=memory, float16=True, passes=2)[0] for memory in (None, 0)
    )
    for name, values in lates.extract(network(), batches, passes=2).blocks.items():
        assert kept.blocks[name].dtype == (torch.float16 if name == "body.9" else torch.float32)
        assert torch.equal(kept.blocks[name].float(), spilled.blocks[name])
        torch.testing.assert_close(spilled.blocks[name], values, rtol=1e-3, atol=1e-6)
