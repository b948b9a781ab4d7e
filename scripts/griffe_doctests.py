"""An extension of griffe, which reads docstrings for the API reference: doctests become the section "Examples" of their docstring."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Our docstrings end with their doctests; Google's style wants them under a title."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Indent the doctests of a docstring under "Examples:"."""
        if obj.docstring is not None:
            obj.docstring.value = titled(obj.docstring.value)


def titled(docstring: str) -> str:
    """The docstring with a title above its doctests, which are its last paragraphs.

    >>> titled("Add one.\\n\\n>>> add(1)\\n2")
    'Add one.\\n\\nExamples:\\n    >>> add(1)\\n    2'
    """
    lines = docstring.splitlines()
    first = next((place for place, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
    if first == len(lines):
        return docstring
    examples = [f"    {line}" if line else "" for line in lines[first:]]
    return "\n".join([*lines[:first], "Examples:", *examples])
