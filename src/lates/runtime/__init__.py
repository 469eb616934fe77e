"""How it runs, and nothing of what is computed.

run         device, seed, memory, processes and progress in one object
processes   all-reduce and gather over torch.distributed
memory      how many bytes there are to use; rows in temporary files beyond them
process_state   the global generators and the precision of products, borrowed and given back
threads     chunks of rows shared among threads
files       write a file whole or not at all
checks      what every function demands of logits, labels and arguments
text        words in messages: names safe to print, and not too many; how to install what is optional
"""

from lates.runtime.checks import FLOATS, Array, as_tensor, default_names, form_of, name_members, plain_tensor
from lates.runtime.checks import check_finite, check_form, check_labels, check_logits, check_members
from lates.runtime.checks import check_budget, check_integer, check_seed, check_share
from lates.runtime.checks import warn_caller, warn_if_probabilities
from lates.runtime.files import check_target, write_whole
from lates.runtime.text import OptionalImport, abbreviate, printable
from lates.runtime.memory import RowStore, default_memory
from lates.runtime.threads import map_threads, on_one_core, split_rows, thread_count
from lates.runtime.processes import ALONE, Processes
from lates.runtime.process_state import full_precision, mix_seeds, process_lock, seeded_globally
from lates.runtime.run import Progress, Run, shown
