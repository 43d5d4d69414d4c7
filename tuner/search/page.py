"""Charts as one self-contained HTML page that asks no host for anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from string import Template
from typing import Any

GENERATOR = '<meta name="generator" content="cputune">'
"""What marks a file as a page of ours, which may be overwritten."""

_PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
$generator
<meta http-equiv="Content-Security-Policy" content="default-src 'none';
 script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --quiet: #59636e; --line: #d8dee4; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171c; --ink: #e6e9ee; --quiet: #9aa4b0; --line: #343a43; }
}
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0 1.5rem; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.chart { border-top: 1px solid var(--line); padding: .5rem 0; }
</style>
</head>
<body>
<header><h1>$title</h1><dl>$facts</dl></header>
<main>$places</main>
<script type="application/json" id="charts">$charts</script>
<script>$library</script>
<script>
"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function coloured(layout) {
  const axes = {};
  for (const name of Object.keys(layout).filter(name => /^[xy]axis/.test(name)))
    axes[name] = { ...layout[name], automargin: true, gridcolor: style("--line"),
      linecolor: style("--line"), zerolinecolor: style("--line") };
  return { ...layout, ...axes, paper_bgcolor: style("--paper"), plot_bgcolor: style("--paper"),
    font: { ...layout.font, color: style("--ink"), family: "system-ui, sans-serif" } };
}
function draw() {
  return Promise.all(Object.entries(charts).map(([name, { data, layout }]) =>
    Plotly.react(name, data, coloured(layout), { responsive: true, displaylogo: false })));
}
draw().then(() => { document.body.dataset.drawn = Object.keys(charts).length; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
</script>
</body>
</html>
"""
)


def page(title: str, facts: Mapping[str, str], charts: Mapping[str, Any]) -> str:
    """The page: `facts` stand in its header, `charts` are figures as plain values by the id of their place.

    Every text is escaped: names come from model files, which may come from anywhere.
    """
    from plotly.io.json import to_json_plotly
    from plotly.offline import get_plotlyjs

    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    places = "".join(f'<section class="chart" id="{escape(name)}"></section>' for name in charts)
    # "<" could end the script that holds it.
    figures = json.dumps(json.loads(to_json_plotly(dict(charts)))).replace("<", "\\u003c")
    return _PAGE.substitute(
        generator=GENERATOR,
        title=escape(title),
        facts=rows,
        places=places,
        charts=figures,
        library=get_plotlyjs(),
    )
