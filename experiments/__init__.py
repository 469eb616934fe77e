"""The paper's experiments: networks, data, training, evaluation, tables. Built on the public names of `lates` alone."""
