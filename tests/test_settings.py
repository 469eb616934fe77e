"""A misspelt setting is an error, not another setting."""

from dataclasses import replace
from typing import Any

import pytest

import lates
from lates.settings import SHIFT_EXPECTED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pooling": "gird"}, "pooling='gird': expected one of 'grid', 'spatial', 'flat'"),
        ({"views": "blur"}, "views='blur': expected one of None, 'flip', 'shift', 'jitter'"),
        ({"grid": 0}, "grid=0: expected a whole number, at least 1"),
        ({"passes": 0}, "passes=0: expected a whole number, at least 1"),
        ({"passes": 1.5}, "passes=1.5: expected a whole number, at least 1"),
        ({"tolerance": -1.0}, "tolerance=-1.0: expected a finite number that is not negative"),
        ({"regularise": float("nan")}, "regularise=nan"),
        ({"regularise": float("inf")}, "regularise=inf"),
        ({"regularise": "1"}, "regularise='1': expected a finite number"),
        ({"standardise": "no"}, "standardise='no': expected one of True, False"),
        ({"tolerance": True}, "tolerance=True: expected a finite number"),
        ({"grid": True}, "grid=True: expected a whole number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lates.Settings(**change)


def test_expecting_shift_changes_what_the_user_has_not() -> None:
    assert lates.DEFAULT.expecting_shift() == replace(lates.DEFAULT, **SHIFT_EXPECTED)
    assert replace(lates.DEFAULT, cap=0.9).expecting_shift() == replace(lates.DEFAULT, cap=0.9, last_block=False)
