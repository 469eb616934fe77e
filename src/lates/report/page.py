"""One HTML file with text, tables, charts and the code that draws them. It loads nothing, and its content security policy
forbids it to; only the two scripts whose digests it names may run."""

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

import vl_convert
from altair import SCHEMA_VERSION

from lates.report.charts import draw_all
from lates.report.findings import Findings
from lates.report.sections import sections_of
from lates.report.sentences import LABELS, headline, lead, warning


def page_of(findings: Findings, title: str) -> str:
    """The page: a head that forbids all requests, the sections, the data of the charts, the scripts."""
    library, (script, style, page) = chart_library(), map(read_part, ("page.js", "page.css", "page.html"))
    caution, (change, outcome) = warning(findings), headline(findings)
    switches = [
        f'<label><input type="checkbox" checked autocomplete="off" data-switch="{method}">'
        f'<span class="swatch {method}" aria-hidden="true"></span>{LABELS[method]}</label>'
        for method in findings.methods
    ]
    return Template(page).substitute(
        policy=f"default-src 'none'; script-src '{_digest(library)}' '{_digest(script)}' 'unsafe-eval'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        title=escape(title),
        style=style,
        caution=f'<p class="caution" role="note">{escape(caution)}</p>' if caution else "",
        outcome=outcome,
        headline=escape(change),
        lead=escape(lead(findings)),
        switches="".join(switches),
        sections=sections_of(findings),
        charts=embedded(draw_all(findings)),
        library=library,
        script=script,
    )


def read_part(name: str) -> str:
    return files("lates.report").joinpath(name).read_text("utf-8")


def embedded(content: object) -> str:
    """JSON that cannot close the script element around it."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, with their licences, in the versions that Altair needs."""
    major, minor, *_ = SCHEMA_VERSION.lstrip("v").split(".")
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=f"{major}.{minor}")
    return f"/*\n{read_part('NOTICE')}*/\n{bundle}"


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
