"""Layer-stack temperature scaling: calibrate any PyTorch classifier with all of its layers.

The names below stand in the order in which data flows, and so do the files they come from.
"""

__version__ = "0.1.0"
