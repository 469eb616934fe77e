"""Pictures of a calibration, drawn with matplotlib (the extra `plot`).

style     figure, axes, the look of each method
notebook  a figure that shows itself in a notebook
pictures  reliability, risk_coverage, contributions, budget

Each function returns the figure. Pass `axes` to draw into your own; without it a new figure is made, apart from pyplot and its
list of open figures. Colours differ in hue and in brightness, and methods also in marker and line style.

>>> lates.plot.reliability({"before": model(x), "after": calibrated(x)}, labels).savefig("a.svg")
"""

from lates.plot.pictures import budget, contributions, reliability, risk_coverage

__all__ = ["reliability", "risk_coverage", "contributions", "budget"]
