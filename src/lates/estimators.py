"""The stack on cached logits, in scikit-learn's manner: the constructor stores, `fit` learns, learned names end in `_`.

Logits and labels are numpy arrays, lists, data frames or torch tensors; tensors give tensors, all else arrays. Labels are
class numbers, label c meaning column c of the logits; or names, which stand in sorted order for the columns. Logarithms of
probabilities are valid logits, so what a forest or a boosted tree predicts can be calibrated too:
`np.log(probabilities.clip(1e-12))`.

Both estimators work in `clone`, in searches and as the last step of a `Pipeline`, and neither needs scikit-learn: it is
imported where it calls for tags of its own, and nowhere else.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from lates.runtime import Array, as_tensor, check_labels, name_members
from lates.settings import DEFAULT
from lates.stack import Stack, apply_stack, fit_stack


class Calibrator:
    """What both estimators share. Their constructors' parameters are those of `fit_stack`, by the same names.

    stack_          the fitted `lates.Stack`, with its certificate
    weights_        [members], of the kind of the logits given
    contributions_  name -> weight / sum of weights
    classes_        0 … classes - 1, or the sorted names that the labels were; and n_features_in_, their number
    """

    _estimator_type = "classifier"
    stack_: Stack
    weights_: Array
    contributions_: dict[str, float]
    classes_: np.ndarray
    n_features_in_: int

    def _named_members(self, X: Any) -> Mapping[str, Array]:
        """What X holds: name -> logits [n, classes], the head last."""
        return {"head": X}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the weights to labels y [n]; `sample_weight` [n] says how much each row counts, and only ratios matter."""
        members = self._members_in(X)
        labels, classes = _numbered(_array(y), next(reversed(members.values())))
        weights = None if sample_weight is None else _array(sample_weight)
        self.stack_ = fit_stack(members, labels, row_weights=weights, **self.get_params())
        head = members[self.stack_.names[-1]]
        self.weights_ = _like(head, self.stack_.weights)
        self.contributions_ = self.stack_.contributions
        self.n_features_in_ = head.shape[1]
        self.classes_ = np.arange(self.n_features_in_) if classes is None else classes
        return self

    def decision_function(self, X: Any) -> Array:
        """Calibrated logits [n, classes]; for two classes, as scikit-learn has it, how far the second leads [n]."""
        logits = self.calibrated_logits(X)
        return logits[:, 1] - logits[:, 0] if self.n_features_in_ == 2 else logits

    def calibrated_logits(self, X: Any) -> Array:
        """Calibrated logits [n, classes], for two classes as well."""
        if not self.__sklearn_is_fitted__():
            raise _not_fitted(f"This {type(self).__name__} is not fitted yet: call fit(X, y) first.")
        members = self._members_in(X)
        logits = apply_stack(self.stack_, members)
        return _like(members[self.stack_.names[-1]], logits)

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities [n, classes]."""
        logits = self.calibrated_logits(X)
        return _like(logits, as_tensor(logits, "logits").softmax(dim=1))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row [n]; where the labels were names, its name, in an array."""
        logits = self.calibrated_logits(X)
        classes = as_tensor(logits, "logits").argmax(dim=1)
        return self.classes_[classes.cpu().numpy()] if _are_names(self.classes_) else _like(logits, classes)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, by which scikit-learn's classifiers score themselves."""
        y, predicted = _array(y), self.predict(X)
        if not _are_names(self.classes_):
            predicted = as_tensor(predicted, "predictions").cpu().numpy()
            y = check_labels(y, len(predicted), self.n_features_in_).cpu().numpy()
        weights = None if sample_weight is None else np.asarray(_array(sample_weight))
        return float(np.average(predicted == y, weights=weights))

    def _members_in(self, X: Any) -> dict[str, Array]:
        return {name: _floating(_array(values)) for name, values in self._named_members(_array(X)).items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments. `deep` is part of scikit-learn's protocol; there is nothing deeper here."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f'{type(self).__name__} has no parameter "{name}". Parameters: {", ".join(known)}.')
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "stack_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(three_d_array=True),
        )


@dataclass(eq=False)
class TemperatureScaling(Calibrator):
    """softmax(logits / temperature_), fitted to labelled rows that were not used for training. X: logits [n, classes].

    regularise  c of the penalty (c / sqrt(n)) / 2 · temperature_⁻²
    loss        "nll", solved exactly; "brier" or "soft_ece"
    prior       how strongly few rows keep the temperature at 1; 0: not at all

    >>> lates.TemperatureScaling().fit(logits, labels).temperature_
    """

    regularise: float = 0.0
    loss: str = "nll"
    prior: float = DEFAULT.prior

    @property
    def temperature_(self) -> float:
        """1 / weight; inf where the logits say nothing about the labels."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("temperature_ exists once the estimator is fitted: call fit(X, y) first.")
        return self.stack_.temperature


@dataclass(eq=False)
class LogitStack(Calibrator):
    """softmax(sum_k weights_k · member_k), weights_ >= 0, fitted to labelled rows that were not used for training.

    X: logits [n, classes, members], or a list or mapping name -> logits [n, classes]; the head is the last member.

    loss        "nll", solved exactly; "brier" or "soft_ece"
    regularise  c of the penalty (c / sqrt(n)) / 2 · ||weights_||²
    solver      "exact", or "sgd", the paper's
    prior       how strongly few rows keep the weights at the head as it is; 0: not at all

    >>> lates.LogitStack().fit({"layer3": probe_logits, "head": logits}, labels).contributions_
    """

    loss: str = "nll"
    regularise: float = 0.0
    solver: Literal["exact", "sgd"] = "exact"
    prior: float = DEFAULT.prior

    def _named_members(self, X: Array | Mapping[str, Array]) -> Mapping[str, Array]:
        return name_members(X)


def _array(values: Any) -> Any:
    """What a data frame, a series or a list of numbers, names or rows holds, as an array; all else as it is."""
    if isinstance(values, list | tuple):
        holds_members = any(np.ndim(item) > 1 and not isinstance(item, list) for item in values)
        return values if holds_members else np.asarray(values)
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def _floating(logits: Any) -> Any:
    """Whole numbers as floats; all else as it is, for the checks to judge."""
    if isinstance(logits, Tensor):
        return logits if logits.is_floating_point() or logits.dtype == torch.bool else logits.double()
    return logits.astype(np.float64) if isinstance(logits, np.ndarray) and logits.dtype.kind in "iu" else logits


def _are_names(labels: Any) -> bool:
    return isinstance(labels, np.ndarray) and labels.dtype.kind in "OSUT"


def _numbered(labels: Any, head: Any) -> tuple[Any, np.ndarray | None]:
    """Class numbers and, where the labels are names, the sorted names, one for each column of the logits."""
    if not _are_names(labels):
        return labels, None
    names, numbers = np.unique(labels, return_inverse=True)
    if np.ndim(head) == 2 and len(names) != head.shape[1]:
        raise ValueError(
            f"The labels name {len(names)} classes ({', '.join(map(str, names[:4]))}, …), but the logits have {head.shape[1]} "
            "columns; which column is which class? Pass class numbers, or rows of every class."
        )
    return numbers.reshape(labels.shape), names


def _not_fitted(message: str) -> Exception:
    """scikit-learn's NotFittedError, which is a ValueError; without scikit-learn, a ValueError."""
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return ValueError(message)
    return NotFittedError(message)


def _like(given: Array, values: Tensor) -> Array:
    """Of the kind of what was given: a tensor, or a numpy array."""
    return values if isinstance(given, Tensor) else values.numpy()
