"""Data -> trained networks.

further_networks kinds of network that the paper does not have
released         networks that others have trained and published
networks         all architectures by name: the paper's five, further ones, two tiny ones
hyperparameters  the ways to train them, as data
feeds            the batches of a step
step             forward, backward, update
loop             all epochs, resumed from checkpoints
checkpoints      a training run on disk
"""
