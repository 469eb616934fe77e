"""How each contender is asked for each task; these files run inside the contender's own environment.

An adapter has `native(logits, labels)`, which puts numpy arrays (float32 [n, classes], int64 [n]) into the container that
the contender works on, outside the clock, and one function for each task it can do, (logits, labels) -> number, inside the
clock. Where a contender demands probabilities, taking the softmax is part of the task, for what everybody has is logits;
`softmax` is then a task of its own, so that its share is known. Packages are imported by name, for each is installed in one
environment only. Settings are the contender's defaults, but for 15 bins everywhere.
"""
