"""A manual page's source (man or mdoc macros) -> its title line and the pages it names under SEE ALSO."""

from __future__ import annotations

import re
from dataclasses import dataclass

FONTS = frozenset("B I R SM SB BI BR IB IR RB RI".split())  # of two letters: the arguments change fonts and join without blanks
SPACED = frozenset("B I R SM SB".split())
MDOC_TEXT = frozenset("Sy Em Li Cm Fl Ar Pa Dv Ev Va Tn Pq Dq Sq Qq Ql No Fn Fa Ns Ic Cd".split())  # their arguments are text
CHARACTERS = {
    "aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "em": "—", "en": "–", "hy": "-", "mi": "-", "bu": "•",
    "co": "©", "rg": "®", "tm": "™", "ga": "`", "ha": "^", "ti": "~", "rs": "\\", "sl": "/", "ba": "|", "at": "@", "sh": "#",
    "Do": "$", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "la": "⟨", "ra": "⟩", "->": "→", "<-": "←", "mu": "×", "de": "°",
    "+-": "±", "<=": "≤", ">=": "≥", "!=": "≠", "ss": "ß", "ae": "æ", "oe": "œ", "/o": "ø", "oa": "å",
    "'a": "á", "'e": "é", "'i": "í", "'o": "ó", "'u": "ú", ":a": "ä", ":o": "ö", ":u": "ü", "`a": "à", "`e": "è", ",c": "ç", "~n": "ñ",
}  # fmt: skip
STRINGS = {"lq": '"', "rq": '"', 'L"': '"', 'R"': '"', "C+": "C++", "--": "-", "PI": "pi", "C`": "", "C'": "", "Tm": "™", "R": "®"}
ONE_LETTER = {"-": "-", "e": "\\", "\\": "\\", "`": "`", "'": "'", ".": ".", " ": " ", "~": " ", "0": " ", "t": " "}

ESCAPE = re.compile(
    r"""\\(?:
        ["#].*                                            # a comment to the end of the line
      | f(?:\(..|\[[^]]*\]|.)                             # fonts
      | s(?:[+-]?\[[^]]*\]|[+-]?\(..|[+-]?'[^']*'|[+-]?[1-3][0-9]|[+-]?[0-9])  # sizes; \s10 and above have two digits
      | [mMFgnk](?:\[[^]]*\]|\(..|[+-]?.)                 # colours, families, numbers
      | [hvwlLDXoNbSHxAZR]'[^']*'                         # motion and drawing
      | \*(?:\((?P<string2>..)|\[(?P<string>[^]]*)\]|(?P<string1>.))
      | \((?P<character2>..)
      | \[(?P<character>[^]]*)\]
      | (?P<one>.)
      | $
    )""",
    re.VERBOSE,
)
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|\S)+)')  # a backslash keeps the blank after it within the argument
# the first line that is no comment includes another page; what is not named like a page is a file of macros
REDIRECT = re.compile(r"""(?:(?:[.']\\".*)?\n)*\.so\s+(\S+\.[1-9ln]\w*)(?:\.gz)?[ \t]*(?:\n|$)""")
DASH = re.compile(r"\s+(?:-{1,3}|[–—])\s+|\s*—\s*")
REFERENCE = re.compile(r"([A-Za-z0-9_][\w.:+@\[\]-]*)\s?\(([1-9ln][a-zA-Z]*)\)")
MODULE = re.compile(r"(?<![\w:/])[A-Za-z_]\w*(?:::\w+)+(?![\w(])")


@dataclass(frozen=True)
class Page:
    """Title, names and references of a manual page. `redirect` is the path of the page that stands in its place, or empty."""

    title: str  # "name - description", or empty where its NAME section has no such line
    names: tuple[str, ...]  # all names it describes
    see_also: tuple[tuple[str, str], ...]  # (name, section); section is empty for a Perl module named without one
    redirect: str = ""


def parse_page(source: str) -> Page:
    """Read the NAME and SEE ALSO sections of a page, or its redirect."""
    redirect = REDIRECT.match(source)
    if redirect:
        return Page("", (), (), redirect.group(1))
    sections = _sections(source)
    names, description = _title(sections.get("NAME", []))
    title = f"{names[0]} - {description}" if names and description else ""
    return Page(title, names, _references(" ".join(_text(line) for line in sections.get("SEE ALSO", []))))


def plain(text: str) -> str:
    r"""Text without roff's escapes.

    >>> plain(r"\fBprint\-all\fR\|(1) \(em C\s-1PAN\s0 caf\['e]")
    'print-all(1) — CPAN café'
    """
    return ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    one = match["one"]
    if one is not None:
        return ONE_LETTER.get(one, "")
    string = match["string2"] or match["string"] or match["string1"]
    if string is not None:
        return STRINGS.get(string, "")
    name = match["character2"] or match["character"]
    if name is None:
        return ""
    if re.fullmatch(r"u[0-9A-F]{4,5}", name):
        return chr(int(name[1:], 16))
    return CHARACTERS.get(name, "")


def _sections(source: str) -> dict[str, list[str]]:
    """The lines of the two sections that are wanted, macros still in them."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    defining = False
    for line in source.splitlines():
        if defining:
            defining = not line.startswith("..")
        elif line.startswith((".de ", ".de1 ", ".ig")):
            defining = True
        elif line[:3] in (".SH", ".Sh"):
            heading = " ".join(_arguments(line[3:])).strip().upper()
            heading = "NAME" if heading == "NAMES" else heading
            # a page that writes a section twice means both; the first NAME alone is its title
            current = found.setdefault(heading, []) if heading == "SEE ALSO" or (heading == "NAME" and heading not in found) else None
        elif current is not None:
            current.append(line)
    return found


def _arguments(rest: str) -> list[str]:
    """
    >>> _arguments('foo "bar baz" qux\\\\ quux')
    ['foo', 'bar baz', 'qux quux']
    """
    pieces = ARGUMENT.findall(re.sub(r'\\".*', "", rest))
    return [plain(quoted.replace('""', '"') or bare) for quoted, bare in pieces]


def _text(line: str) -> str:
    r"""The text that a line shows.

    >>> _text(".BR ls (1),"), _text(".Xr cat 1 ,"), _text(r"plain \fBtext\fR"), _text(".sp 2")
    ('ls(1),', 'cat(1),', 'plain text', '')
    """
    if not line.startswith((".", "'")):
        return plain(line)
    macro, _, rest = line[1:].strip().partition(" ")
    if macro in FONTS:
        return (" " if macro in SPACED else "").join(_arguments(rest))
    if macro in ("Xr", "MR"):
        name, section, *after = [*_arguments(rest), "", ""]
        return f"{name}({section})" + "".join(after) if section.strip(",.;") else name + section
    if macro in MDOC_TEXT:
        return " ".join(_arguments(rest))
    if macro == "IP":
        return "".join(_arguments(rest)[:1])
    return ""


def _title(lines: list[str]) -> tuple[tuple[str, ...], str]:
    if any(line.startswith(".Nd") for line in lines):
        return _mdoc_title(lines)
    shown: list[str] = []
    for line in lines:
        if shown and line.startswith((".PP", ".P", ".LP", ".SS", ".sp")) and DASH.search(" ".join(shown)):
            break  # what follows the title's paragraph is no part of it
        shown.append(_text(line))
    parts = DASH.split(" ".join(" ".join(shown).split()), maxsplit=1)
    if len(parts) < 2:
        return (), ""
    return _names(parts[0]), parts[1].strip()


def _mdoc_title(lines: list[str]) -> tuple[tuple[str, ...], str]:
    names: list[str] = []
    described: list[str] = []
    for line in lines:
        if line.startswith(".Nm"):
            names += _arguments(line[3:])
        elif line.startswith(".Nd"):
            described.append(" ".join(_arguments(line[3:])))
        elif described:
            described.append(_text(line))
    return _names(",".join(names)), " ".join(" ".join(described).split())


def _names(text: str) -> tuple[str, ...]:
    """The names before the dash; none where one of them is no single word, for then the line is no title line."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names if all(len(name.split()) == 1 for name in names) else ()


def _references(text: str) -> tuple[tuple[str, str], ...]:
    text = re.sub(r"\w+://\S+", " ", text)
    found = [(match.start(), match[1], match[2]) for match in REFERENCE.finditer(text)]
    found += [(match.start(), match[0], "") for match in MODULE.finditer(text)]
    return tuple(dict.fromkeys((name, section) for _, name, section in sorted(found)))
