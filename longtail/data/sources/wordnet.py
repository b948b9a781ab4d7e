"""A data set from WordNet: a synset's words and gloss -> the synsets that its pointers name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from longtail.core.errors import DataError
from longtail.core.values import Dataset
from longtail.data.faults import Faults
from longtail.data.files import blocks, shorten
from longtail.data.sources.building import Item, build

FILES = {"data.noun": "n", "data.verb": "v", "data.adj": "a", "data.adv": "r"}
TEST_SHARE = 0.2
INSTALL = "apt-get install wordnet-base"
FORM = "offset file type word-count words pointer-count pointers | gloss"
MARKER = re.compile(r"\((?:a|p|ip)\)$")  # where an adjective may stand: not part of the word


def wordnet(dictionary: Path, seed: int = 0, *, test_share: float = TEST_SHARE) -> Dataset:
    """A data set of WordNet synsets, from a folder with data.noun, data.verb, data.adj and data.adv.

    The text is "word, word : gloss" without the gloss's example sentences; the labels are the synsets behind all
    pointers, of words or of the whole synset. Nearly every pointer has its reverse, so the reverse of a test pair is
    taken out of the training rows: the protocol would otherwise leave next to nothing to test.
    """
    if not dictionary.is_dir():
        raise DataError(f"{dictionary} is not a folder. Wanted WordNet's dict folder; Debian's is /usr/share/wordnet, from: {INSTALL}.")
    items = [item for file, part in FILES.items() for item in _synsets(dictionary / file, part)]
    _check_targets(dictionary, items)
    notes = (f"{len(items):,} synsets read.",)
    return build("LF-WordNetRelated", items, seed=seed, test_share=test_share, keep_test_pairs=True, notes=notes)


def _synsets(path: Path, part: str) -> Iterator[Item]:
    if not path.is_file():
        raise DataError(f"{path} does not exist. Wanted {', '.join(FILES)} in one folder, as after: {INSTALL}.")
    faults = Faults(path)
    for block in blocks(path):
        for number, line in enumerate(block.bytes.decode().splitlines(), start=block.line):
            if line.startswith("  ") or not line.strip():  # the licence
                continue
            try:
                yield _synset(line, part)
            except (ValueError, IndexError):
                faults.add("form", number, f"{shorten(line)!r} came; wanted a synset: {FORM}.")
    faults.check()


def _synset(line: str, part: str) -> Item:
    """The synset of a line; ValueError or IndexError where the line does not hold what its counts promise.

    >>> _synset("00002684 03 n 02 object 0 physical_object 0 001 @ 00001930 n 0000 | a visible entity; \\"it was\\"", "n")
    Item(uid='n00002684', text='object, physical object : a visible entity', targets=('n00001930',), group='')
    """
    head, bar, gloss = line.partition(" | ")
    fields = head.split()
    n_words = int(fields[3], 16)
    words, fields, offset = fields[4 : 4 + 2 * n_words : 2], fields[4 + 2 * n_words :], fields[0]
    n_pointers = int(fields[0])
    pointers = fields[1 : 1 + 4 * n_pointers]  # symbol, offset, part of speech, words
    if not bar or not n_words or len(words) != n_words or len(pointers) != 4 * n_pointers or not offset.isdigit():
        raise ValueError(line)
    text = ", ".join(MARKER.sub("", word).replace("_", " ") for word in words)
    targets = [_uid(target, kind) for target, kind in zip(pointers[1::4], pointers[2::4], strict=True)]
    return Item(_uid(offset, part), f"{text} : {_definition(gloss)}", tuple(dict.fromkeys(targets)))


def _uid(offset: str, part: str) -> str:
    if part not in "nvasr" or len(part) != 1:
        raise ValueError(part)
    return ("a" if part == "s" else part) + offset  # satellites stand in data.adj too


def _definition(gloss: str) -> str:
    """The gloss up to its first example sentence.

    >>> _definition('happening by chance ; "an accidental shooting"; "accidental poisoning"  ')
    'happening by chance'
    """
    return gloss.split('; "')[0].strip("; ")


def _check_targets(dictionary: Path, items: list[Item]) -> None:
    known = {item.uid for item in items}
    lost = [(item.uid, target) for item in items for target in item.targets if target not in known]
    if lost:
        count = f" ({len(lost):,} such pointers)" if len(lost) > 1 else ""
        raise DataError(f"{dictionary}: {lost[0][0]} points to {lost[0][1]}, which no file holds{count}. Take all files from one WordNet.")
