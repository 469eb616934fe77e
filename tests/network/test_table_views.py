"""Views of table rows: noise in units of the column's deviation, entries swapped within their column."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lates
from lates.network.augmentations import ROW_NOISE, SWAPPED, measure_channels
from lates.network.reading import TableView
from lates.network.views import TABLE_NAMES, make_view
from tests.network.test_views import choose, seeded

SCALES = torch.tensor([1.0, 10.0, 0.1, 0.0])
"""The deviation of each column of the rows below; the last one is constant."""


def draw_rows(n: int = 4000, seed: int = 0) -> Tensor:
    return 5 + SCALES * torch.randn(n, len(SCALES), generator=seeded(seed))


def view_once(name: TableView, rows: Tensor, seed: int = 0) -> Tensor:
    return make_view(name, measure_channels(rows))(rows, seeded(seed))


@pytest.mark.parametrize("name", TABLE_NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
def test_views_keep_shape_and_dtype_leave_the_input_alone_and_a_constant_column_too(
    name: TableView, dtype: torch.dtype
) -> None:
    rows = (draw_rows(100) * 20).abs().clamp(max=255).to(dtype)
    before = rows.clone()
    changed = view_once(name, rows)
    assert (changed.shape, changed.dtype) == (rows.shape, dtype)
    assert torch.equal(rows, before)
    assert not torch.equal(changed, rows)
    assert torch.equal(changed[:, 3], rows[:, 3])


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_the_generator_decides_and_the_global_state_takes_no_part(name: TableView) -> None:
    rows, generator, untouched = draw_rows(50), seeded(3), torch.get_rng_state()
    view = make_view(name, measure_channels(rows))
    first, second = view(rows, generator), view(rows, generator)
    assert torch.equal(torch.get_rng_state(), untouched)
    assert torch.equal(view(rows, seeded(3)), first)
    assert not torch.equal(second, first)


def test_noise_is_as_strong_as_stated_in_units_of_the_column() -> None:
    rows = draw_rows()
    added = (view_once("noise", rows) - rows)[:, :3] / SCALES[:3]
    torch.testing.assert_close(added.std(0), torch.full((3,), ROW_NOISE), rtol=0.05, atol=0)
    assert float(torch.corrcoef(added.T).sub(torch.eye(3)).abs().max()) < 0.06


def test_swapped_entries_come_from_their_column_in_another_row() -> None:
    rows = torch.arange(400.0).repeat(3, 1).T + torch.tensor([0, 1000, 2000])
    changed = view_once("swap", rows)
    moved = changed != rows
    assert float(moved.float().mean()) == pytest.approx(SWAPPED, abs=0.03)
    assert torch.equal(changed.div(1000, rounding_mode="floor"), rows.div(1000, rounding_mode="floor"))
    assert 0 < int(moved.all(1).sum()) < 0.1 * len(rows), "entries move alone, not rows"


def test_a_single_row_has_nothing_to_swap_with() -> None:
    row = draw_rows(1)
    assert torch.equal(view_once("swap", row), row)


def test_columns_are_measured_over_batches() -> None:
    rows, labels = draw_rows(600), torch.zeros(300).long()
    view = choose("noise", [(rows[:300], labels), (rows[300:], labels)])
    assert view is not None
    assert torch.equal(view(rows, seeded()), view_once("noise", rows))


@pytest.mark.parametrize(
    "inputs", [torch.zeros(2, 3, 4, 4), torch.zeros(2, 5).long(), {"input_ids": torch.zeros(2, 7).long()}, "text"]
)
def test_other_inputs_are_no_rows(inputs: Any) -> None:
    loader = [(inputs, torch.zeros(2).long())]
    for name in TABLE_NAMES:
        with pytest.raises(
            ValueError, match=rf'views="{name}" needs table rows .*; the train inputs are a .*Pass views='
        ):
            choose(name, loader)


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_calibrating_with_views_of_rows_repeats_from_the_seed(name: TableView) -> None:
    generator = seeded(1)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    batches = [(torch.randn(100, 4, generator=generator), torch.arange(100) % 3) for _ in range(4)]
    loaders: dict[str, Any] = {"train": batches[:2], "holdout": batches[2:], "budget": None, "progress": False}

    def probes_of(seed: int) -> Tensor:
        features = lates.extract(model, batches[:2], views=name, passes=2, seed=seed)
        return torch.cat(list(features.blocks.values()), 1)

    assert torch.equal(probes_of(0), probes_of(0))
    assert not torch.equal(probes_of(0), probes_of(1))
    assert lates.calibrate(model, **loaders, views=name, holdout_views=name).fit.certified
