"""The calibrated model: the network, its probes and the weights, as one nn.Module that returns logits."""

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from lates.batches import call_arguments
from lates.blocks import HEAD
from lates.copies import copy_tree
from lates.linear import Probe
from lates.pooling import Pooling
from lates.sampling import drawing_from, mean_log_probability, read_draws
from lates.storage import check_fingerprint, read_calibration, read_record, warn_of_changes, write_calibration
from lates.taps import device_of
from lates.voters import Voter
from lates.votes import Fit


class CalibratedModel(nn.Module):
    """A calibrated classifier. forward takes what the network takes and returns logits [n, classes].

    One voter, one sample: the stacked logits themselves. Several voters (an ensemble) or samples (MC dropout): the log of
    the mean probability. It shares parameters with the user's model until it is moved or cast, and is always in
    evaluation. A one-logit binary network gives two columns.
    """

    def __init__(self, voters: Sequence[Voter], fit: Fit, samples: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.voters = nn.ModuleList(voters)
        self.fit = fit
        self.samples = samples
        self.generator = torch.Generator().manual_seed(seed)
        self.train(False)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        draws = self._each_draw(lambda voter: voter(*inputs, **named_inputs))
        return draws[0] if len(draws) == 1 else mean_log_probability(draws)

    def predict_proba(self, inputs: Any) -> Tensor:
        """Probabilities [n, classes] of inputs in the form in which a loader gives them: a tensor, a tuple, a mapping."""
        positional, named = call_arguments(inputs)
        with torch.no_grad():
            return self(*positional, **named).softmax(-1)

    def members(self, inputs: Any) -> Tensor | list[Tensor]:
        """The members' logits [n, classes, members], in the order of `member_names`; a list of them, one for each draw,
        for ensembles and MC dropout."""
        positional, named = call_arguments(inputs)
        with torch.no_grad():
            draws = self._each_draw(lambda voter: voter.members(*positional, **named))
        return draws[0] if len(draws) == 1 else draws

    @property
    def member_names(self) -> list[str]:
        """The members that are computed: those that vote, and the head last, whatever its weight."""
        return [prefix + name for prefix, voter in self._named_voters() for name in (*voter.voting, HEAD)]

    @property
    def weights(self) -> dict[str, float]:
        """beta of every block considered and of the head; 0 where a block has no vote."""
        return self._by_name("weights")

    @property
    def contributions(self) -> dict[str, float]:
        """Each weight's share of their sum; all 0 where all weights are 0."""
        weights = self.weights
        total = sum(weights.values())
        return {name: weight / total if total > 0 else 0.0 for name, weight in weights.items()}

    @property
    def spread(self) -> dict[str, float]:
        """Weight times the deviation of the member's logits: raw weights depend on logit scale, this does not."""
        deviations = self._by_name("deviations")
        return {name: weight * deviations[name] for name, weight in self.weights.items()}

    @property
    def holdout_accuracies(self) -> dict[str, float]:
        """How often each member alone was right on the hold-out, votes or not; empty for files that do not say."""
        return {
            prefix + name: accuracy
            for prefix, voter in self._named_voters()
            for name, accuracy in zip(voter.names, voter.accuracies, strict=False)
        }

    @property
    def temperature(self) -> float:
        """1 / weight of the head, inf where that is 0; an error where other members vote too.

        (A ValueError: of an AttributeError raised in a property, nn.Module drops the message.)
        """
        if self.member_names != [HEAD]:
            names = ", ".join(self.member_names)
            raise ValueError(f"A temperature exists only where the head votes alone; here vote {names}. See `weights`.")
        weight = self.weights[HEAD]
        return 1 / weight if weight > 0 else float("inf")

    @property
    def added_parameters(self) -> int:
        """Parameters of all probes, what `budget` caps; the weights themselves are one number per member."""
        return sum(p.numel() for _, voter in self._named_voters() for p in voter.probes.parameters())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write probes, weights and names (never the network) to a safetensors file, whole or not at all.

        The file is for the network as it was calibrated; one that was trained on since is a warning.
        """
        tensors: dict[str, Tensor] = {}
        voters: list[dict[str, Any]] = []
        for place, (_, voter) in enumerate(self._named_voters()):
            then, changed = voter.network_then()
            warn_of_changes(
                changed,
                len(then),
                "cast or trained on since. The file is for the weights of then: load it with those, or calibrate again.",
            )
            tensors |= {f"{place}.weights": voter.weights, f"{place}.deviations": voter.deviations}
            tensors |= {f"{place}.{name}": value for name, value in voter.probes.state_dict(prefix="probes.").items()}
            voters.append(
                {
                    "names": voter.names,
                    "accuracies": voter.accuracies,
                    "poolings": {name: asdict(pooling) for name, pooling in voter.poolings.items()},
                    "network": then,
                }
            )
        seed = self.generator.initial_seed()
        metadata = {"samples": self.samples, "seed": seed, "fit": asdict(self.fit), "voters": voters}
        write_calibration(path, tensors, metadata)

    def train(self, mode: bool = True) -> "CalibratedModel":
        """Stays in evaluation, where it was calibrated, whatever is asked."""
        super().train(False)
        return self

    def __str__(self) -> str:
        return describe(self)

    def __repr__(self) -> str:
        return describe(self)

    def _each_draw(self, call: Callable[[Voter], Tensor]) -> list[Tensor]:
        """What `call` gives for each network, `samples` times; MC dropout draws from the generator."""
        order = [voter for _, voter in self._named_voters() for _ in range(self.samples)]
        if not order[0].dropout:
            return [call(voter) for voter in order]
        with drawing_from(self.generator, device_of(self)):
            return [call(voter) for voter in order]

    def _named_voters(self) -> list[tuple[str, Voter]]:
        several = len(self.voters) > 1
        voters = [voter for voter in self.voters if isinstance(voter, Voter)]
        return [(f"{place}/" if several else "", voter) for place, voter in enumerate(voters)]

    def _by_name(self, values: str) -> dict[str, float]:
        return {
            prefix + name: value
            for prefix, voter in self._named_voters()
            for name, value in zip(voter.names, getattr(voter, values).tolist(), strict=True)
        }


def load(path: str | os.PathLike[str], model: nn.Module | Sequence[nn.Module]) -> CalibratedModel:
    """Read a calibration saved by `CalibratedModel.save` and put it on the model, or models, that it was made for.

    Another architecture (names, shapes) is an error that says what differs; other values of parameters, a warning.
    """
    tensors, metadata = read_calibration(path)
    if "fitted" in metadata:
        raise ValueError(
            f"{path} holds weights for cached logits, by `lates fit`. Pass what `save` or `lates calibrate` wrote."
        )
    draws = read_draws(model)
    try:
        samples, voters, fit = metadata["samples"], metadata["voters"], read_record(Fit, metadata["fit"])
        if (len(voters), samples) != (len(draws.networks), draws.samples):
            raise ValueError(
                f"{path} calibrates {len(voters)} network(s) with {samples} sample(s) each; this model has "
                f"{len(draws.networks)} with {draws.samples}. Pass the same mc_dropout(…) or list of models."
            )
        if len(fit.temperature_weights) != len(voters):
            raise KeyError("temperature_weights")
        loaded = [
            _load_voter(str(path), network, saved, _under(f"{place}.", tensors), fit.classes, draws.dropout)
            for place, (network, saved) in enumerate(zip(draws.networks, voters, strict=True))
        ]
        return CalibratedModel(loaded, fit, samples, operator.index(metadata["seed"]))
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"The metadata of {path} are damaged ({fault!r}). Save the calibration again.") from fault


def _load_voter(
    path: str, network: nn.Module, saved: Mapping[str, Any], tensors: dict[str, Tensor], classes: int, dropout: bool
) -> Voter:
    check_fingerprint(saved["network"], copy_tree(network), path)
    poolings = {name: read_record(Pooling, fields) for name, fields in saved["poolings"].items()}
    probes = {
        name: _read_probe(path, name, _under(f"probes.{place}.", tensors), classes)
        for place, name in enumerate(poolings)
    }
    weights, deviations = tensors["weights"], tensors["deviations"]
    shape = (len(saved["names"]),)
    if not weights.shape == deviations.shape == shape or not bool(((weights >= 0) & weights.isfinite()).all()):
        raise ValueError(
            f"{path} holds weights {weights.tolist()} for members {saved['names']}. Save the calibration again."
        )
    accuracies = saved.get("accuracies", [])
    if accuracies and (len(accuracies), {type(value) for value in accuracies}) != (*shape, {float}):
        raise TypeError(f"accuracies={accuracies!r}")
    return Voter(network, saved["names"], weights, deviations, probes, poolings, dropout, accuracies, saved["network"])


def _read_probe(path: str, name: str, tensors: Mapping[str, Tensor], classes: int) -> Probe:
    probe = Probe(tensors["down"], tensors.get("up"), tensors["bias"])
    rank = probe.down.shape[0] if probe.up is not None else classes
    shapes = [list(tensors[part].shape) for part in ("bias", "up", "down") if part in tensors]
    expected = [[classes], *([[classes, rank]] if probe.up is not None else []), [rank, probe.down.shape[-1]]]
    if shapes != expected or not all(bool(values.isfinite().all()) for values in tensors.values()):
        raise ValueError(
            f'The probe of block "{name}" in {path} has shapes {shapes}; expected finite values of shapes {expected}. '
            "Save the calibration again."
        )
    return probe


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


NAME_COLUMNS = 31


def describe(model: CalibratedModel) -> str:
    """A table that fits 80 columns: one line per member, then what the fit found."""
    weights, shares, spread, fit = model.weights, model.contributions, model.spread, model.fit
    labels = {name: name if len(name) <= NAME_COLUMNS else f"…{name[1 - NAME_COLUMNS :]}" for name in weights}
    width = max(map(len, ["member", *labels.values()]))
    lines = [f"{'member':<{width}}  {'weight':>9}  {'contribution':>12}  {'spread':>9}"]
    for name, weight in weights.items():
        numbers = f"{weight:>9.4g}  {shares[name]:>12.3f}  {spread[name]:>9.4g}"
        lines.append(f"{labels[name]:<{width}}  {numbers}  {'#' * round(10 * shares[name])}".rstrip())
    draws = model.samples * len(model.voters)
    mean = f", mean of {draws} draws" if draws > 1 else ""
    lines.append(
        f"{sum(weight > 0 for weight in weights.values())} of {len(weights)} members vote; "
        f"{model.added_parameters:,} parameters added{mean}"
    )
    lines.append(f"log-loss on the hold-out, {fit.rows:,} rows:")
    lines.append(f"network {fit.nll_network:.4f}, temperature {fit.nll_temperature:.4f}, stack {fit.nll:.4f}")
    unbounded = "not bounded by the hold-out" if fit.bounded else "not certified"
    lines.append(f"fitted to {fit.loss}: {'the optimum, certified' if fit.certified else unbounded}")
    return "\n".join(lines)
