"""A trained network -> numbers.

loading       a trained network with its data
clock         seconds by stage, and a deadline
rivals        what LATES is compared with, one idea a file
environment   commit, device, versions, settings
prepared      features and probes that all methods share
methods       the methods compared, one function each
dropout       MC dropout: alone, with temperature scaling, with LATES
image_blocks  values per image, pooled for the bootstrap
measured_sets what was measured on one test set, as a file
measuring     methods on test sets
kept_logits   logits for methods that come later
evaluate      every method on every test set
search        settings of the library compared on hold-out data
timing        a calibration's time beside its training's
"""
