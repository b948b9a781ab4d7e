"""The page around the sections, with style and script inside, so that it loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from longtail.experiments.compare.cells import Cell

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of the page that one can jump to."""

    name: str  # its id
    title: str
    words: str  # how to read it
    content: str  # HTML

    def html(self, level: int) -> str:
        title = f'<h{level} id="{self.name}-title">{escape(self.title)}</h{level}>'
        return f"""<section id="{self.name}" aria-labelledby="{self.name}-title">
{title}
<p class="faint">{escape(self.words)}</p>
{self.content}
</section>
"""


def page(cells: Sequence[Cell], by_data: Mapping[str, Sequence[Section]]) -> str:
    """The sections of each data set; where there are several, below a heading for each."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # a browser holds the page to its promise: it loads nothing, and no script but its own runs
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{mark}'; img-src data:"
    title = f"{', '.join(by_data)}: compared runs"
    machines, versions = (", ".join(dict.fromkeys(names)) for names in ([one.machine for one in cells], [one.version for one in cells]))
    about = f"{len(cells):,} training{'s' * (len(cells) != 1)} on {machines}, with longtail {versions}"
    several = len(by_data) > 1
    links, body = [], []
    for place, (name, sections) in enumerate(by_data.items()):
        if several:
            links.append((f"data-{place}", name))
            body.append(f'<h2 id="data-{place}">{escape(name)}</h2>')
        else:
            links += [(section.name, section.title) for section in sections]
        body += [section.html(3 if several else 2) for section in sections]
    navigation = "".join(f'<li><a href="#{name}">{escape(words)}</a></li>' for name, words in links)
    sections_html = "\n".join(body)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="faint">{escape(about)}</p>
<nav aria-label="Sections"><ul>{navigation}</ul></nav>
</header>
<main>
{sections_html}
</main>
<script>{script}</script>
</body>
</html>
"""
