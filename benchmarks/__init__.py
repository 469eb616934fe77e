"""`lates` side by side with what one would use instead: `make bench`. See README.md for how to read it."""
