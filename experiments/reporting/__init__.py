"""Files in results/ -> tables and figures.

names         of metrics, data sets, networks, methods
paper         what the paper prints
summaries     results as numbers
significance  tests and effect sizes on paired gains
proposition   the paper's theory in numbers
shift_search  the rule that chose the default views
tables        every table
figures       every figure
"""
