"""What goes in.

files        written whole or not at all: JSON with a digest, CSV
archives     CIFAR's archives: downloaded once, verified, unpacked
datasets     CIFAR and folders of images
splits       train and hold-out parts, drawn from a seed
natural      CIFAR's classes among the images of Tiny-ImageNet
corruptions  the 19 corruptions of the benchmark
shifts       families of shift for choosing defaults
"""
