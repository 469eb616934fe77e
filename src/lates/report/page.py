"""One HTML file with text, tables, charts and the code that draws them. It loads nothing, and its content security policy
forbids it to; only the two scripts whose digests it names may run."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files

import vl_convert
from altair import SCHEMA_VERSION

from lates.report.findings import Findings
from lates.report.formats import LABELS
from lates.report.sections import sections_of
from lates.report.sentences import headline, lead, warning
from lates.report.style import CONFIG, Spec

HERE = files("lates.report")


def page_of(findings: Findings, specs: Mapping[str, Spec], title: str) -> str:
    """The page: a head that forbids all requests, the sections, the data of the charts, the scripts."""
    library, script, style = chart_library(), *((HERE / name).read_text("utf-8") for name in ("page.js", "page.css"))
    caution, (change, outcome) = warning(findings), headline(findings)
    policy = (
        f"default-src 'none'; script-src '{_digest(library)}' '{_digest(script)}' 'unsafe-eval'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<p class="kicker">Calibration report</p>
<h1>{escape(title)}</h1>
{f'<p class="caution" role="note">{escape(caution)}</p>' if caution else ""}
<p class="headline {outcome}">{escape(change)}</p>
<p class="lead">{escape(lead(findings))}</p>
<noscript><p>Scripts are disabled, so the charts are not drawn; the tables contain most of the numbers.</p></noscript>
</header>
{_switches(findings.methods)}
<main>
{"".join(sections_of(findings))}
</main>
<dl id="tip" role="tooltip" hidden></dl>
<script type="application/json" id="charts">{embedded({"config": CONFIG, "charts": dict(specs)})}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def embedded(content: object) -> str:
    """JSON that cannot close the script element around it."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, with their licences, in the versions that Altair needs."""
    major, minor, *_ = SCHEMA_VERSION.lstrip("v").split(".")
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=f"{major}.{minor}")
    return f"/*\n{(HERE / 'NOTICE').read_text('utf-8')}*/\n{bundle}"


def _switches(methods: Sequence[str]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" checked autocomplete="off" data-switch="{method}">'
        f'<span class="swatch {method}" aria-hidden="true"></span>{LABELS[method]}</label>'
        for method in methods
    )
    return (
        f'<div id="switches"><div><fieldset><legend>Methods shown</legend>{boxes}</fieldset>'
        '<button id="theme" type="button" title="Switch between light and dark">Dark</button></div></div>'
    )


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
