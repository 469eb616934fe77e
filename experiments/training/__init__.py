"""Data -> trained networks.

released         networks that others have trained and published
networks         all architectures by name: the paper's five, further ones, tiny ones
hyperparameters  the ways to train them, as data
feeds            the batches of a step
step             forward, backward, update
loop             all epochs, resumed from checkpoints
checkpoints      a training run on disk
"""
