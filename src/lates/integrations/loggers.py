"""A calibrated model as plain numbers for any logger: {name: float}, with slashes in the names, as TensorBoard groups them.

>>> for name, value in loggers.scalars(calibrated).items():
...     writer.add_scalar(name, value)  # TensorBoard
>>> wandb.log(loggers.scalars(calibrated))  # or mlflow.log_metrics, or a row of a CSV file

`lates.metrics.summary` gives the metrics of any logits in the same form.
"""

from lates.model import CalibratedModel


def scalars(calibrated: CalibratedModel, prefix: str = "lates/") -> dict[str, float]:
    """The calibration as a flat dictionary: log-losses on the hold-out, contributions, weights and added parameters."""
    fit = calibrated.fit
    numbers: dict[str, float] = {
        "holdout_nll/network": fit.nll_network,
        "holdout_nll/temperature": fit.nll_temperature,
        "holdout_nll/calibrated": fit.nll,
        "holdout_rows": float(fit.rows),
        "added_parameters": float(calibrated.added_parameters),
        **{f"contribution/{name}": share for name, share in calibrated.contributions.items()},
        **{f"weight/{name}": weight for name, weight in calibrated.weights.items()},
    }
    return {prefix + name: value for name, value in numbers.items()}
