"""The rows of the table, one file each: what is measured, on what sizes, and the goal."""
