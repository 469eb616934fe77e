"""The calibrated model: the network, its probes and the weights, as one nn.Module that returns logits."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lates.batches import call_arguments
from lates.features import HEAD, device_of
from lates.pooling import Pooling
from lates.probes import Probe
from lates.sampling import drawing_from, mean_log_probability, read_draws
from lates.storage import check_fingerprint, fingerprint, read_calibration, write_calibration
from lates.taps import RecordedNetwork, copy_tree, switch_to_evaluation
from lates.votes import Fit


class LinearProbe(nn.Module):
    """A deployed probe: features [n, width] -> logits [n, classes]."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.down = _frozen(probe.down)
        self.up = None if probe.up is None else _frozen(probe.up)
        self.bias = _frozen(probe.bias)

    def forward(self, features: Tensor) -> Tensor:
        features = features.to(self.bias.dtype)
        if self.up is None:
            return F.linear(features, self.down, self.bias)
        return F.linear(F.linear(features, self.down), self.up, self.bias)


def _frozen(values: Tensor) -> nn.Parameter:
    """Contiguous, so that a probe computes the same to the last bit before saving and after loading."""
    return nn.Parameter(values.clone(memory_format=torch.contiguous_format), requires_grad=False)


class Voter(nn.Module):
    """One network with a vote for each of its members: forward gives sum_k weight_k logits_k, [n, classes].

    names       of all members considered, the head last; weights and deviations [members] go with them.
    A member of weight 0 has no probe and no recorder here: it costs nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        weights: Tensor,
        deviations: Tensor,
        probes: Mapping[str, Probe],
        poolings: Mapping[str, Pooling],
        dropout: bool = False,
    ) -> None:
        super().__init__()
        device = device_of(model)
        self.names = tuple(names)
        self.voting = tuple(name for name, weight in zip(names[:-1], weights.tolist(), strict=False) if weight > 0)
        self.poolings = {name: poolings[name] for name in self.voting}
        self.dropout = dropout
        self.network = RecordedNetwork(model, self.poolings)
        self.probes = nn.ModuleList(LinearProbe(probes[name]) for name in self.voting).to(device)
        self.weights: Tensor
        self.deviations: Tensor
        self.register_buffer("weights", weights.to(device, torch.float32))
        self.register_buffer("deviations", deviations.to(device, torch.float32))
        self._places = tuple(self.names.index(name) for name in self.voting)
        self.train(False)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        logits, probed = self._votes(*inputs, **named_inputs)
        total = self.weights[-1] * logits
        for place, member in zip(self._places, probed, strict=True):
            total = total + self.weights[place] * member
        return total

    def members(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        """The logits of the members that vote and the head, [n, classes, members]."""
        logits, probed = self._votes(*inputs, **named_inputs)
        return torch.stack([*(member.to(logits.dtype) for member in probed), logits], dim=2)

    def _votes(self, *inputs: Any, **named_inputs: Any) -> tuple[Tensor, list[Tensor]]:
        logits, features = self.network(*inputs, **named_inputs)
        with torch.autocast(logits.device.type, enabled=False):
            probed = [probe(features[name][0]) for name, probe in zip(self.voting, self.probes, strict=True)]
        return logits.to(torch.promote_types(logits.dtype, torch.float32)), probed

    def train(self, mode: bool = True) -> "Voter":
        """Stays in evaluation, where it was calibrated, whatever is asked; MC dropout keeps its dropout on."""
        super().train(False)
        switch_to_evaluation(self.network, self.dropout)
        return self


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
        self.training = False

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        if len(self.voters) == self.samples == 1:
            return self.voters[0](*inputs, **named_inputs)
        with drawing_from(self.generator, device_of(self)):
            draws = [voter(*inputs, **named_inputs) for voter in self.voters for _ in range(self.samples)]
        return mean_log_probability(draws)

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
            if len(self.voters) == self.samples == 1:
                return self._voter(0).members(*positional, **named)
            with drawing_from(self.generator, device_of(self)):
                order = [i for i in range(len(self.voters)) for _ in range(self.samples)]
                return [self._voter(i).members(*positional, **named) for i in order]

    @property
    def member_names(self) -> list[str]:
        """The members that vote, the head last: those that are computed."""
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
    def temperature(self) -> float:
        """1 / weight of the head, where it is the only member that votes."""
        if self.member_names != [HEAD]:
            names = ", ".join(self.member_names)
            raise AttributeError(
                f"A temperature exists only where the head votes alone; here vote {names}. See `weights`."
            )
        weight = self.weights[HEAD]
        return 1 / weight if weight > 0 else float("inf")

    @property
    def added_parameters(self) -> int:
        """Parameters of all probes and the weights of the members that vote."""
        probes = sum(p.numel() for _, voter in self._named_voters() for p in voter.probes.parameters())
        return probes + len(self.member_names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write probes, weights and names (never the network) to a safetensors file, whole or not at all."""
        tensors: dict[str, Tensor] = {}
        voters: list[dict[str, Any]] = []
        for place, (_, voter) in enumerate(self._named_voters()):
            tensors |= {f"{place}.weights": voter.weights, f"{place}.deviations": voter.deviations}
            tensors |= {f"{place}.{name}": value for name, value in voter.probes.state_dict(prefix="probes.").items()}
            voters.append(
                {
                    "names": voter.names,
                    "poolings": {name: asdict(pooling) for name, pooling in voter.poolings.items()},
                    "network": fingerprint(voter.network.network),
                }
            )
        metadata = {"samples": self.samples, "fit": asdict(self.fit), "voters": voters}
        write_calibration(path, tensors, metadata)

    def train(self, mode: bool = True) -> "CalibratedModel":
        """Stays in evaluation, where it was calibrated, whatever is asked."""
        for voter in self.voters:
            voter.train(False)
        return self

    def __str__(self) -> str:
        return describe(self)

    def __repr__(self) -> str:
        return describe(self)

    def _voter(self, place: int) -> Voter:
        voter = self.voters[place]
        assert isinstance(voter, Voter)
        return voter

    def _named_voters(self) -> list[tuple[str, Voter]]:
        several = len(self.voters) > 1
        return [(f"{i}/" if several else "", self._voter(i)) for i in range(len(self.voters))]

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
    draws = read_draws(model)
    try:
        samples, voters, fit = metadata["samples"], metadata["voters"], Fit(**metadata["fit"])
        if (len(voters), samples) != (len(draws.networks), draws.samples):
            raise ValueError(
                f"{path} calibrates {len(voters)} network(s) with {samples} sample(s) each; this model has "
                f"{len(draws.networks)} with {draws.samples}. Pass the same mc_dropout(…) or list of models."
            )
        loaded = [
            _load_voter(str(path), network, saved, _under(f"{place}.", tensors), draws.dropout)
            for place, (network, saved) in enumerate(zip(draws.networks, voters, strict=True))
        ]
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"The metadata of {path} are damaged ({fault!r}). Save the calibration again.") from fault
    return CalibratedModel(loaded, fit, samples)


def _load_voter(
    path: str, network: nn.Module, saved: Mapping[str, Any], tensors: dict[str, Tensor], dropout: bool
) -> Voter:
    check_fingerprint(saved["network"], copy_tree(network), path)
    poolings = {
        name: Pooling(**{**fields, "size": tuple(fields["size"])}) for name, fields in saved["poolings"].items()
    }
    probes = {
        name: Probe(part["down"], part.get("up"), part["bias"])
        for name, part in ((name, _under(f"probes.{place}.", tensors)) for place, name in enumerate(poolings))
    }
    weights = tensors["weights"]
    if len(weights) != len(saved["names"]) or not bool(((weights >= 0) & weights.isfinite()).all()):
        raise ValueError(
            f"{path} holds weights {weights.tolist()} for members {saved['names']}. Save the calibration again."
        )
    return Voter(network, saved["names"], weights, tensors["deviations"], probes, poolings, dropout)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def describe(model: CalibratedModel) -> str:
    """A table that fits 80 columns: one line per member, then what the fit found."""
    weights, shares, spread = model.weights, model.contributions, model.spread
    width = max(len("member"), *(len(name) for name in weights))
    lines = [f"{'member':<{width}}  {'weight':>9}  {'contribution':>12}  {'weight x deviation':>18}"]
    for name, weight in weights.items():
        bar = "#" * round(20 * shares[name])
        lines.append(f"{name:<{width}}  {weight:>9.4f}  {shares[name]:>12.3f}  {spread[name]:>18.3f}  {bar}".rstrip())
    fit = model.fit
    drawn = f", mean of {model.samples * len(model.voters)} draws" if model.samples * len(model.voters) > 1 else ""
    lines.append(
        f"{len(model.member_names)} of {len(weights)} members vote; {model.added_parameters:,} parameters added{drawn}"
    )
    state = (
        "the optimum, certified"
        if fit.certified
        else "not bounded by the hold-out"
        if fit.bounded
        else "a local optimum"
    )
    lines.append(
        f"hold-out log-loss ({fit.rows:,} rows): network {fit.nll_network:.4f}, temperature {fit.nll_temperature:.4f}, "
        f"stack {fit.nll:.4f}"
    )
    lines.append(f"fitted to {fit.loss}: {state}")
    return "\n".join(lines)
