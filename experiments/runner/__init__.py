"""Recipes -> files in results/.

claims    one runner at a time per network
results   the files of a cell, and what two must share to stand in one table
cache     data read, corrupted and kept once
cells     train, evaluate and write what is unfinished; how far a cell is
ensemble  the seeds of an architecture together
display   the terminal
faults    errors in a sentence
"""
