"""A data set from manual pages: a page's title line -> the pages under its SEE ALSO."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from longtail.core.errors import DataError
from longtail.core.values import Dataset
from longtail.data.sources.building import Item, build
from longtail.data.sources.manual_pages import PageFile, installed_pages, packaged_pages, page_name
from longtail.data.sources.roff import Page, parse_page

INSTALLED = Path("/usr/share/man")
TEST_SHARE = 0.3
MAX_REDIRECTS = 5  # a longer chain is a circle

Key = tuple[str, str]  # name and section of a page


def man(pages: Path | None = None, seed: int = 0, *, test_share: float = TEST_SHARE) -> Dataset:
    """A data set of manual pages; the text is "name - description" from the NAME section.

    Args:
        pages: a folder with man1, man2, ..., or a folder of .deb files; this machine's pages where not given.
        seed: of the split.
        test_share: share of the pages in the test split.
    """
    root = INSTALLED if pages is None else pages
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Wanted one with man1, man2, ..., or one of .deb files.")
    notes: list[str] = []
    packages = sorted(root.rglob("*.deb"))
    files = packaged_pages(packages, notes) if packages else installed_pages(root)
    items = _items(files, notes)
    if not items:
        raise DataError(f"{root}: no manual page with a title came. Wanted man1/ls.1.gz and the like, or .deb files that hold them.")
    return build("LF-ManSeeAlsoTitles", items, seed=seed, test_share=test_share, notes=tuple(notes))


def _items(files: Iterable[PageFile], notes: list[str]) -> list[Item]:
    parsed: dict[Key, Page] = {}
    leads: dict[Key, Key] = {}  # links and redirects
    for file in files:
        key = (file.name, file.section)
        page = None if file.link else parse_page(file.source)
        onward = file.link or (page.redirect if page else "")
        if onward:
            leads[key] = page_name(onward) or (onward.rpartition("/")[2], file.section)
        elif page and key not in parsed:
            parsed[key] = page
    titled = {key: page for key, page in parsed.items() if page.title}
    notes.append(f"{len(parsed):,} pages read, {len(parsed) - len(titled):,} of them without a title line.")
    find = _Finder(titled, leads)
    return [_item(key, page, find) for key, page in titled.items()]


class _Finder:
    """Which page a reference means: the exact one, a link to one, or one that says it describes that name."""

    def __init__(self, titled: dict[Key, Page], leads: dict[Key, Key]) -> None:
        self.titled, self.leads = titled, leads
        self.loose: dict[Key, Key] = {}  # (name, first letter of the section or nothing) -> page
        for key in sorted([*titled, *leads]):
            for section in (key[1][0], ""):
                self.loose.setdefault((key[0], section), key)
        for key in sorted(titled):
            for name in titled[key].names:
                for section in (key[1][0], ""):
                    self.loose.setdefault((name, section), key)

    def __call__(self, name: str, section: str) -> Key | None:
        key: Key | None = (name, section)
        if key not in self.titled and key not in self.leads:
            key = self.loose.get((name, section[:1]))
        for _ in range(MAX_REDIRECTS):
            if key is None or key in self.titled:
                return key
            onward = self.leads.get(key)
            key = onward if onward in self.titled or onward in self.leads or onward is None else self.loose.get((onward[0], onward[1][:1]))
        return None


def _item(key: Key, page: Page, find: _Finder) -> Item:
    found = (find(name, section) for name, section in page.see_also)
    return Item(_uid(key), page.title, tuple(dict.fromkeys(_uid(target) for target in found if target and target != key)))


def _uid(key: Key) -> str:
    return f"{key[0]}({key[1]})"
