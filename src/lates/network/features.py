"""Features: what each block puts out, one row per input, with the network's logits and the labels."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.network.batches import IGNORED
from lates.network.blocks import HEAD
from lates.network.pooling import Pooling
from lates.runtime import Processes, RowStore, check_finite

LABELS = ".labels"
"""Their name among the rows, beside the blocks and the head: no module's name begins with a dot."""
NUMBERS_AT_ONCE = 1 << 18
"""Features that are copied to float64 together when their moments are taken."""


@dataclass(frozen=True)
class Features:
    """What one reading of a loader gave, rows aligned; the tensors may be views of a memory-mapped temporary file.

    Where several processes calibrate together, the rows are this process's, the moments those of all.

    blocks      name -> features [n, width], float32; float16 where they are read on a GPU and in its range
    logits      [n, classes], float32, of the network itself; [0, classes] where they were not kept
    labels      [n], int64
    poolings    name -> how the features were made from the block's output
    centre, deviation   name -> [width], float64, over these rows; the deviation of a constant feature is 1
    parameters  of the network, the measure of the budget
    mapped      whether the tensors are in a temporary file rather than in memory
    passes      how often the loader was read: each input has this many rows, one pass after the other
    digests     of the raw inputs of one pass: equal numbers for equal inputs
    processes   that calibrate together
    shards      the rows of one pass in each process
    """

    blocks: dict[str, Tensor]
    logits: Tensor
    labels: Tensor
    poolings: dict[str, Pooling]
    centre: dict[str, Tensor]
    deviation: dict[str, Tensor]
    parameters: int
    mapped: bool
    passes: int
    digests: Tensor
    processes: Processes
    shards: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Of this process."""
        return len(self.labels)

    @property
    def all_rows(self) -> int:
        """Of all processes."""
        return self.rows if self.processes.world_size == 1 else self.passes * sum(self.shards)

    @property
    def positions(self) -> Tensor:
        """The position of each row among those of all processes: [n], int64, on the CPU."""
        here, everywhere = max(self.rows // self.passes, 1), self.all_rows // self.passes
        position, before = torch.arange(self.rows), sum(self.shards[: self.processes.rank])
        return position // here * everywhere + before + position % here

    def first_pass(self) -> "Features":
        """The first row of each input; the moments stay those of all passes."""
        first = slice(self.rows // self.passes)
        blocks = {name: values[first] for name, values in self.blocks.items()}
        return replace(self, blocks=blocks, logits=self.logits[first], labels=self.labels[first], passes=1)

    @property
    def bytes_in_memory(self) -> int:
        """All that the tensors keep there: those of one pass keep the other passes too."""
        tensors = () if self.mapped else (*self.blocks.values(), self.logits, self.labels)
        return sum(values.untyped_storage().nbytes() for values in tensors)

    @property
    def classes(self) -> int:
        return self.logits.shape[1]


def collect_features(
    store: RowStore, poolings: dict[str, Pooling], parameters: int, passes: int, digests: Tensor, processes: Processes
) -> Features:
    """The rows read of one sample, with their moments."""
    mapped, tensors = store.spilled, store.collect()
    shards = tuple(processes.gather(len(tensors[LABELS]) // passes))
    if not sum(shards):
        raise ValueError(f"No row is left to learn from: every label is {IGNORED}, which marks rows to ignore.")
    moments = {name: _moments(tensors[name], processes) for name in poolings}
    return Features(
        blocks={name: tensors[name] for name in poolings},
        logits=tensors[HEAD],
        labels=tensors[LABELS],
        poolings=poolings,
        centre={name: centre for name, (centre, _) in moments.items()},
        deviation={name: deviation for name, (_, deviation) in moments.items()},
        parameters=parameters,
        mapped=mapped,
        passes=passes,
        digests=digests,
        processes=processes,
        shards=shards,
    )


def check_features(features: Features, role: str) -> None:
    """Refuse features and logits that are not finite: their centre is not finite either."""
    for name, centre in features.centre.items():
        if not bool(centre.isfinite().all()):
            faulty = features.blocks[name].isfinite().all(dim=1).logical_not().nonzero()[:, 0]
            where = f"rows of the {role} loader"
            if len(faulty):  # otherwise they are in another process
                first = int(faulty[0]) % (features.rows // features.passes)
                where = f"{len(faulty)} of {features.rows} {where}, the first of them row {first}"
            raise ValueError(
                f'Block "{name}" puts out NaN or infinite values in {where}. Look for such values in that row\'s inputs, then '
                "for overflow in the network; or leave the block out of blocks=."
            )
    check_finite(features.logits, f"the network's logits of the {role} loader")


def _moments(values: Tensor, processes: Processes) -> tuple[Tensor, Tensor]:
    """Mean and deviation of every column [n, width] over all rows of all processes, in float64.

    The deviation of a constant column is 1, so that dividing by it keeps the column; rounding of float32 counts as constant.
    Sums are taken around the mean of rank 0's first rows, so that nothing cancels.
    """
    chunks = values.split(max(NUMBERS_AT_ONCE // values.shape[1], 1))
    shift = processes.broadcast(chunks[0].double().mean(0).nan_to_num(0, 0, 0))
    sums = shift.new_zeros(3, len(shift))  # count, sum and sum of squares around the shift
    for chunk in chunks:
        moved = chunk.double() - shift
        sums += torch.stack([torch.full_like(shift, len(moved)), moved.sum(0), moved.square().sum(0)])
    count, total, squares = processes.all_reduce(sums)
    centre = shift + total / count
    variance = (squares / count - (total / count).square()).clamp(min=0)
    constant = variance <= 1e-12 * (centre.square() + variance)
    return centre, torch.where(constant, 1.0, variance.sqrt())
