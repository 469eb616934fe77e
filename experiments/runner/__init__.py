"""Recipes -> files in results/.

claims      one runner at a time per network
provenance  what two results must share to stand in one table
results     the file of a cell
cache       data read, corrupted and kept once
cells       train, evaluate and write what is unfinished; how far a cell is
ensemble    the seeds of an architecture together
display     the terminal
faults      errors in a sentence
"""
