"""Data -> trained networks.

networks         the paper's five architectures and two tiny ones
hyperparameters  the ways to train them, as data
feeds            the batches of a step
step             forward, backward, update
loop             all epochs, resumed from checkpoints
checkpoints      a training run on disk
"""
