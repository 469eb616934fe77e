"""A classifier and its loaders -> features: what each block puts out, pooled to one row per input.

batches        what a loader yields and a network returns
pooling        a block's output -> a row of features
recorder       a copy that shares tensors, with recorders on its blocks: the user's model stays as it is
blocks         the names of a network's blocks
augmentations  random changes of images and table rows, drawn from a generator
tokens         the same of token ids; the tokenizer says which
views          changed copies of the inputs
reading        how a loader is read
survey         which blocks can be recorded, seen in the first batch
sampling       MC dropout and ensembles: several samples of a prediction
features       what a reading gives
sharding       each process reads its own shard of the rows
duplicates     rows that train and hold-out share
extraction     read a loader, record the network
"""

from lates.network.batches import IGNORED, LABEL_KEYS, check_loader, count_batches, is_loader, read_batches
from lates.network.batches import call_arguments, check_call, copy_inputs, inputs_of, move_inputs, read_inputs
from lates.network.batches import count_rows, is_dense, take_rows
from lates.network.pooling import Pooling
from lates.network.recorder import RecordedNetwork, copy_network, device_of, switch_to_evaluation
from lates.network.blocks import HEAD, choose_blocks, list_blocks
from lates.network.tokens import Tokenizer
from lates.network.views import Views, flip
from lates.network.reading import Reading
from lates.network.sampling import Ensemble, drawing_from, mc_dropout, mean_log_probability, read_ensemble
from lates.network.sharding import shard_loaders
from lates.network.duplicates import refuse_overlap
from lates.network.features import Features
from lates.network.extraction import extract, extract_samples, extract_training
