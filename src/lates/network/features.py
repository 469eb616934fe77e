"""Features: what each block puts out, one row per input, with the network's logits and the labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lates.network.batches import IGNORED
from lates.network.blocks import HEAD
from lates.network.moments import Moments
from lates.network.pooling import Pooling
from lates.network.shards import Shard
from lates.runtime import Processes, RowStore, check_finite

LABELS = ".labels"
"""Their name among the rows, beside the blocks and the head: no module's name begins with a dot."""


@dataclass(frozen=True)
class Features:
    """What one reading of a loader gave, rows aligned; the tensors may be views of a memory-mapped temporary file.

    Where several processes calibrate together, the rows are this process's, the moments those of all.

    blocks      name -> features [n, width], float32
    logits      [n, classes], float32, of the network itself; [0, classes] where they were not kept
    labels      [n], int64
    poolings    name -> how the features were made from the block's output
    centre, deviation   name -> [width], float64, over these rows; the deviation of a constant feature is 1
    parameters  of the network, the measure of the budget
    mapped      whether the tensors are in a temporary file rather than in memory
    passes      how often the loader was read: each input has this many rows, one pass after the other
    shard       this process's rows among those of all processes
    digests     of the raw inputs of one pass: equal numbers for equal inputs
    """

    blocks: dict[str, Tensor]
    logits: Tensor
    labels: Tensor
    poolings: dict[str, Pooling]
    centre: dict[str, Tensor]
    deviation: dict[str, Tensor]
    parameters: int
    mapped: bool
    passes: int = 1
    shard: Shard = field(default=Shard.of(0))
    digests: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    @property
    def rows(self) -> int:
        """Of this process."""
        return len(self.labels)

    @property
    def all_rows(self) -> int:
        """Of all processes."""
        return self.rows if self.processes.world_size == 1 else self.passes * self.shard.in_pass

    @property
    def places(self) -> Tensor:
        """The position of each row among those of all processes: [n], int64, on the CPU."""
        rows, in_pass = self.rows // self.passes, self.all_rows // self.passes
        position = torch.arange(self.rows)
        return position // max(rows, 1) * in_pass + self.shard.before + position % max(rows, 1)

    @property
    def processes(self) -> Processes:
        return self.shard.processes

    @property
    def bytes_in_memory(self) -> int:
        return 0 if self.mapped else sum(values.nbytes for values in (*self.blocks.values(), self.logits, self.labels))

    @property
    def classes(self) -> int:
        return self.logits.shape[1]


class Collected:
    """What was read of one draw, batch by batch: the rows, in their store, and the moments of the features."""

    def __init__(self, store: RowStore, keep_logits: bool, processes: Processes) -> None:
        self.store, self.keep_logits, self.processes = store, keep_logits, processes
        self.moments: dict[str, Moments] = {}
        self.no_logits = torch.empty(0, 0)

    def append(self, rows: Mapping[str, Tensor]) -> None:
        for name, values in rows.items():
            if name not in (HEAD, LABELS):
                if name not in self.moments:
                    self.moments[name] = Moments(values, self.processes)
                self.moments[name].add(values)
        self.no_logits = rows[HEAD][:0]
        self.store.append(rows if self.keep_logits else {name: rows[name] for name in rows if name != HEAD})

    def as_features(
        self, poolings: dict[str, Pooling], parameters: int, passes: int, digests: Tensor, role: str
    ) -> Features:
        shard = Shard.of(self.store.rows // passes, self.processes)
        if not shard.in_pass:
            raise ValueError(f"No row is left to learn from: every label is {IGNORED}, which marks rows to ignore.")
        for moments in self.moments.values():
            moments.reduce()
        mapped, tensors = self.store.spilled, self.store.collect()
        for name in poolings:
            if not self.moments[name].finite:
                raise ValueError(_not_finite(name, tensors[name], passes, role))
        logits = tensors[HEAD] if self.keep_logits else self.no_logits
        check_finite(logits, f"the network's logits of the {role} loader")
        return Features(
            {name: tensors[name] for name in poolings},
            logits,
            tensors[LABELS],
            poolings,
            {name: self.moments[name].centre for name in poolings},
            {name: self.moments[name].deviation for name in poolings},
            parameters,
            mapped,
            passes,
            shard,
            digests,
        )


def _not_finite(block: str, features: Tensor, passes: int, role: str) -> str:
    """What is wrong with a block, from its features [n, width], some of which are NaN or infinite."""
    faulty = features.isfinite().all(dim=1).logical_not().nonzero()[:, 0]
    where = f"rows of the {role} loader"
    if len(faulty):  # otherwise they are in another process
        first = int(faulty[0]) % (len(features) // passes)
        where = f"{len(faulty)} of {len(features)} {where}, the first of them row {first}"
    return (
        f'Block "{block}" puts out NaN or infinite values in {where}. Look for such values in that row\'s inputs, then for '
        "overflow in the network; or leave the block out of blocks=."
    )
