"""Files in results/ -> pages, tables and figures.

names         of metrics, data sets, networks, methods
paper         what the paper prints
summaries     results as numbers
significance  paired gains, intervals and tests
tables        every table
places        networks and columns that a template names
quantities    numbers in sentences
method_tables tables inside of pages
prose         templates, filled in
document      the pages in pages/, filled in, and every table as CSV
figures       every figure
"""
