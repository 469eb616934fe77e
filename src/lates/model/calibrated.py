"""The calibrated model: the network, its probes and the weights, as one nn.Module that returns logits."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lates.model.consistency import read_saved
from lates.model.stacked import NetworkCalibration, StackedNetwork
from lates.model.storage import check_fingerprint, warn_of_changes, write_calibration
from lates.model.table import fit_lines, member_html, member_table
from lates.network import (
    HEAD,
    Features,
    Pooling,
    call_arguments,
    check_call,
    copy_network,
    device_of,
    drawing_from,
    inputs_of,
    is_loader,
    mean_log_probability,
    read_ensemble,
    read_inputs,
)
from lates.probes import Probe
from lates.runtime import as_tensor
from lates.stack import Stack, member_names

ROWS_AT_ONCE = 256
"""Of a numpy array that is predicted."""


class CalibratedModel(nn.Module):
    """A calibrated classifier. forward takes what the network takes and returns logits [n, classes].

    One network, one sample: the stacked logits themselves. Several networks (an ensemble) or samples (MC dropout): the log
    of the mean probability. It shares parameters with the user's model until it is moved or cast, and is always in
    evaluation mode. A one-logit binary network gives two columns.
    """

    def __init__(self, networks: Sequence[StackedNetwork], fit: Stack, samples: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.networks = cast(Sequence[StackedNetwork], nn.ModuleList(networks))
        self.fit = fit
        self.samples = samples
        self.generator = torch.Generator().manual_seed(seed)
        self.train(False)

    @classmethod
    def assemble(
        cls,
        model: nn.Module | Sequence[nn.Module],
        probes: Sequence[Mapping[str, Probe]],
        stack: Stack,
        poolings: Sequence[Mapping[str, Pooling]],
        accuracies: Sequence[Mapping[str, float]] = (),
        seed: int = 0,
    ) -> "CalibratedModel":
        """Put probes and the stack fitted to them on a network, or networks; blocks without a probe are listed with weight 0.

        probes      for each network: block -> probe; an ensemble has several networks
        poolings    for each network: block -> how its output becomes features, as in `Features.poolings`
        accuracies  for each network: member -> its accuracy alone on the hold-out
        """
        ensemble = read_ensemble(model)
        names = [[*blocks, HEAD] for blocks in poolings]
        fit = stack.over(member_names(names))
        weights = fit.weights.split([len(members) for members in names])
        networks = []
        for number, network in enumerate(ensemble.networks):
            known = tuple(accuracies[number][name] for name in names[number]) if accuracies else ()
            part = NetworkCalibration(tuple(names[number]), weights[number], poolings[number], probes[number], known)
            networks.append(StackedNetwork(network, part, ensemble.dropout))
        return cls(networks, fit, ensemble.samples, seed)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        return _mean(self._each_sample(lambda network: network(*inputs, **named_inputs)))

    def logits_of(self, features: Features | Sequence[Features]) -> Tensor:
        """What `forward` gives, [n, classes], from features that `extract` recorded: one `Features` for each sample."""
        recorded = [features] if isinstance(features, Features) else features
        with torch.no_grad():
            samples = zip(self._samples(), recorded, strict=True)
            return _mean([network.stacked(one.logits, one.blocks) for network, one in samples])

    def predict_proba(self, inputs: Any) -> Any:
        """Probabilities [n, classes] of inputs in the form in which a loader gives them: a tensor, a tuple, a mapping.

        A numpy array is predicted in batches and gives an array. A loader, or a list of batches that are tuples, lists or
        mappings, gives a tensor on the CPU of all its rows; labels in its batches are ignored. A list of tensors is one batch.
        """
        is_array = isinstance(inputs, np.ndarray)
        if not is_array and not is_loader(inputs):
            if isinstance(inputs, list):
                hint = "A list of tensors is one batch; of several batches make tuples: [(first,), (second,)]."
                check_call(self.networks[0].network.network, inputs, "predicted", hint)
            return self._probabilities(inputs_of(inputs))
        batches = inputs_of_array(inputs, self) if is_array else read_inputs(inputs, device_of(self))
        parts = [self._probabilities(batch).cpu() for batch in batches]
        if not parts:
            raise ValueError("The loader yielded no batch: is its dataset empty, or can it be read only once?")
        return torch.cat(parts).numpy() if is_array else torch.cat(parts)

    def predict(self, inputs: Any) -> Any:
        """The most probable class [n] of the same inputs, of the same kind."""
        return self.predict_proba(inputs).argmax(-1)

    def _probabilities(self, inputs: Any) -> Tensor:
        positional, named = call_arguments(inputs)
        with torch.no_grad():
            return self(*positional, **named).softmax(-1)

    def members(self, inputs: Any) -> Tensor | list[Tensor]:
        """The members' logits [n, classes, members], in the order of `member_names`; a list of them, one for each sample,
        for ensembles and MC dropout."""
        positional, named = call_arguments(inputs)
        with torch.no_grad():
            samples = self._each_sample(lambda network: network.members(*positional, **named))
        return samples[0] if len(samples) == 1 else samples

    @property
    def member_names(self) -> list[str]:
        """The members that are computed: those of positive weight, and the head last, whatever its weight."""
        return list(member_names([(*network.voting, HEAD) for network in self.networks]))

    @property
    def weights(self) -> dict[str, float]:
        """beta of every block considered and of the head; 0 where a block has no vote."""
        stack = self._stack()
        return dict(zip(stack.names, stack.weights.tolist(), strict=True))

    @property
    def contributions(self) -> dict[str, float]:
        """Each weight's share of their sum; all 0 where all weights are 0."""
        return self._stack().contributions

    @property
    def spread(self) -> dict[str, float]:
        """Weight times the deviation of the member's logits: raw weights depend on logit scale, this does not."""
        return self._stack().spread

    @property
    def holdout_accuracies(self) -> dict[str, float]:
        """The accuracy of each member alone on the hold-out, whatever its weight; empty for files that lack it."""
        accuracies = [accuracy for network in self.networks for accuracy in network.accuracies]
        return dict(zip(self.fit.names, accuracies, strict=False))

    @property
    def temperature(self) -> float:
        """1 / weight of the head, inf where that is 0. Where other members vote too there is none: an AttributeError."""
        return self._stack().over(self.member_names).temperature

    def __getattr__(self, name: str) -> Any:
        """nn.Module's own would drop the message of an AttributeError that a property has raised: here it is raised again."""
        own = getattr(type(self), name, None)
        return own.__get__(self) if isinstance(own, property) else super().__getattr__(name)

    @property
    def added_parameters(self) -> int:
        """Parameters of all probes, what `budget` limits; the weights themselves are one number per member."""
        return sum(p.numel() for network in self.networks for p in network.probes.parameters())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write probes, weights and names (never the network) to a safetensors file, whole or not at all.

        The file is for the network as it was calibrated; one that was trained on since is a warning.
        """
        tensors: dict[str, Tensor] = {}
        saved: list[dict[str, Any]] = []
        deviations = self.fit.deviations.split([len(network.names) for network in self.networks])
        for number, network in enumerate(self.networks):
            then, changed = network.network_as_calibrated()
            warn_of_changes(
                changed,
                len(then),
                "cast or trained on since. The file is for the weights of then: load it with those, or calibrate again.",
            )
            tensors |= {f"{number}.weights": network.weights, f"{number}.deviations": deviations[number]}
            tensors |= {f"{number}.{name}": value for name, value in network.probes.state_dict(prefix="probes.").items()}
            poolings = {name: asdict(pooling) for name, pooling in network.poolings.items()}
            known = {"names": network.names, "accuracies": network.accuracies}
            saved.append({**known, "poolings": poolings, "network": then})
        seed = self.generator.initial_seed()
        metadata = {"samples": self.samples, "seed": seed, "fit": self.fit.numbers, "voters": saved}
        write_calibration(path, tensors, metadata)

    def train(self, mode: bool = True) -> "CalibratedModel":
        """Stays in evaluation mode, in which it was calibrated, whatever is asked."""
        super().train(False)
        return self

    def get_extra_state(self) -> Tensor:
        """Who votes, as bytes of JSON: the other parts of a state dict are numbered, and fit other members by chance."""
        votes = dict(zip(self.fit.names, (self.fit.weights > 0).tolist(), strict=True))
        return torch.tensor(list(json.dumps(votes).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Called before any part is loaded: refuse the state of other members."""
        given, here = (json.loads(bytes(votes.tolist())) for votes in (state, self.get_extra_state()))
        if list(given.items()) != list(here.items()):
            voting = [", ".join(name for name in votes if votes[name]) or "none" for votes in (given, here)]
            raise ValueError(
                f"This state dict is of {len(given)} members, of which vote: {voting[0]}. Here vote, of {len(here)}: "
                f"{voting[1]}. To move a calibration between models use save and lates.load."
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any, **named: Any) -> None:
        """State dicts of earlier versions do not say who votes."""
        state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *others, **named)

    def __str__(self) -> str:
        """A table that fits 80 columns: one line per member, then the fit."""
        bars = {name: "#" * round(10 * share) for name, share in self.contributions.items()}
        voting, samples = sum(weight > 0 for weight in self.weights.values()), self.samples * len(self.networks)
        count = f"{voting} of {len(bars)} members vote; {self.added_parameters:,} parameters added"
        mean = f", mean of {samples} predictions" if samples > 1 else ""
        return "\n".join([*member_table(self._stack(), bars), count + mean, *fit_lines(self.fit)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks: the same table."""
        return member_html(self._stack(), str(self).splitlines()[len(self.weights) + 1 :])

    def _stack(self) -> Stack:
        """The fit, with the weights that are used now: load_state_dict may have changed them."""
        return replace(self.fit, weights=torch.cat([network.weights.cpu().double() for network in self.networks]))

    def _each_sample(self, call: Callable[[StackedNetwork], Tensor]) -> list[Tensor]:
        """What `call` gives for each network, `samples` times; MC dropout draws from the generator."""
        dropout = self.networks[0].dropout
        with drawing_from(self.generator, device_of(self)) if dropout else nullcontext():
            return [call(network) for network in self._samples()]

    def _samples(self) -> list[StackedNetwork]:
        return [network for network in self.networks for _ in range(self.samples)]


def inputs_of_array(inputs: np.ndarray, model: nn.Module) -> Iterator[Tensor]:
    """An array in batches, on the model's device; numpy's float64 becomes what the parameters are."""
    values = as_tensor(inputs, "inputs")
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    for rows in values.split(ROWS_AT_ONCE):
        yield rows.to(device_of(model), dtype if values.is_floating_point() else values.dtype)


def _mean(samples: Sequence[Tensor]) -> Tensor:
    return samples[0] if len(samples) == 1 else mean_log_probability(samples)


def load(path: str | os.PathLike[str], model: nn.Module | Sequence[nn.Module]) -> CalibratedModel:
    """Read a calibration saved by `CalibratedModel.save` and put it on the model, or models, that it was made for.

    Another architecture (names, shapes) is an error that says what differs; other values of parameters, a warning.
    """
    saved, ensemble = read_saved(path), read_ensemble(model)
    if (len(saved.networks), saved.samples) != (len(ensemble.networks), ensemble.samples):
        raise ValueError(
            f"{path} calibrates {len(saved.networks)} network(s) with {saved.samples} sample(s) each; this model has "
            f"{len(ensemble.networks)} with {ensemble.samples}. Pass the same mc_dropout(…) or list of models."
        )
    networks = []
    for network, part in zip(ensemble.networks, saved.networks, strict=True):
        check_fingerprint(part.fingerprint, copy_network(network), str(path))
        networks.append(StackedNetwork(network, part, ensemble.dropout))
    return CalibratedModel(networks, saved.fit, saved.samples, saved.seed)
