"""How each contender is asked for each task; these files run inside the contender's own environment.

An adapter has `native(logits, labels)`, which puts numpy arrays (float32 [n, classes], int64 [n]) into the container that
the contender works on, outside the clock, and one function for each task it can do, inside the clock: (logits, labels) ->
number, or (probabilities, labels) -> number where the contender demands probabilities. What everybody has is logits, so the
adapter's `softmax` of them is then taken in the same run, and its share of the time is known. Packages are imported by name,
for each is installed in one environment only. Settings are the contender's defaults, but for 15 bins everywhere.
"""
