"""A calibrated model as plain numbers: what it holds, and that TensorBoard takes it as it is."""

import lates
from lates.integrations.loggers import scalars


def test_scalars_agree_with_the_model(calibrated: lates.CalibratedModel) -> None:
    numbers = scalars(calibrated, prefix="")
    assert all(type(value) is float for value in numbers.values())
    assert numbers["holdout_nll/network"] == calibrated.fit.nll_network
    assert numbers["holdout_nll/temperature"] == calibrated.fit.nll_temperature
    assert numbers["holdout_nll/calibrated"] == calibrated.fit.nll
    assert numbers["holdout_rows"] == 1000
    assert numbers["added_parameters"] == calibrated.added_parameters
    for kind, expected in (("contribution", calibrated.contributions), ("weight", calibrated.weights)):
        found = {name.removeprefix(f"{kind}/"): v for name, v in numbers.items() if name.startswith(f"{kind}/")}
        assert found == expected
