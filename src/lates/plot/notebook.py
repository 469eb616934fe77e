"""A figure that shows itself in a notebook. pyplot would do that too, but keeps every figure in a list of the process."""

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    def _repr_png_(self) -> bytes:
        written = BytesIO()
        self.savefig(written, format="png")
        return written.getvalue()
