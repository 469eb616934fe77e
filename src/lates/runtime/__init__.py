"""How it runs, and nothing of what is computed.

checks      what every function demands of logits, labels and arguments
files       write a file whole or not at all
text        words in messages: names safe to print, and not too many; how to install what is optional
memory      how many bytes there are to use
row_store   rows in memory up to a limit, in temporary files beyond it
threads     chunks of rows shared among threads
precision   matrix products in full float32
randomness  the global generators, seeded and restored under one lock
processes   all-reduce and gather over torch.distributed
progress    bars on a terminal or in a notebook
run         device, seed, memory, processes and progress in one object
"""

from lates.runtime.checks import (
    Array,
    as_tensor,
    check_finite,
    check_form,
    check_integer,
    check_labels,
    check_logits,
    check_members,
    check_seed,
    check_share,
    default_names,
    form_of,
    plain_tensor,
    caller_stacklevel,
    warn_caller,
    warn_if_probabilities,
)
from lates.runtime.files import check_target, write_whole
from lates.runtime.text import abbreviate, install_line, printable, printable_lines
from lates.runtime.memory import default_memory
from lates.runtime.threads import map_threads, single_threaded, split_rows, thread_count
from lates.runtime.precision import full_precision
from lates.runtime.processes import ALONE, Processes
from lates.runtime.row_store import RowStore
from lates.runtime.randomness import mix_seeds, process_lock, seeded_globally
from lates.runtime.progress import Progress, shown
from lates.runtime.run import Run
