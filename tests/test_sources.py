"""The makers of real data sets, on inputs small enough to know the answer."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import longtail.data.sources.building as building
import longtail.data.sources.debian as debian_module
import longtail.data.sources.manual_pages as manual_pages
from longtail.core.errors import DataError, SettingError, UnknownName
from longtail.core.values import Dataset, Split
from longtail.data.filters import find_leaks
from longtail.data.sources.building import Item, build
from longtail.data.sources.debian import asked_for, debian, related
from longtail.data.sources.man import man
from longtail.data.sources.packages import Package, read_packages
from longtail.data.sources.roff import parse_page, plain
from longtail.data.sources.wordnet import wordnet


def links(data: Dataset, split: Split) -> dict[str, set[str]]:
    """uid of each row -> uids of its labels."""
    assert data.label_uids is not None and split.uids is not None
    return {uid: {data.label_uids[int(label)] for label in split.labels[row].indices} for row, uid in enumerate(split.uids)}


def filtered(data: Dataset, split: Split) -> set[tuple[str, str]]:
    assert data.label_uids is not None and split.uids is not None and split.filter is not None
    return {(split.uids[row], data.label_uids[label]) for row, label in split.filter.tolist()}


def same(one: Dataset, other: Dataset) -> bool:
    pairs = ((one.train, other.train), (one.test, other.test))
    return one.label_uids == other.label_uids and all(
        a.texts == b.texts and a.uids == b.uids and (a.labels != b.labels).nnz == 0 and np.array_equal(a.filter, b.filter) for a, b in pairs
    )


# ---- building ----------------------------------------------------------------------------------------------------------

ITEMS = [
    Item("a", "text a", ("b", "c", "unknown", "a")),
    Item("b", "text b", ("a", "f")),
    Item("c", "text c", ("b", "f")),
    Item("d", "text d", ("b", "d")),
    Item("e", "text c", ("a",)),  # the text of c: c links to a, too
    Item("f", "text f", ()),
    Item("g", "", ("a",)),  # nothing to read
]


@pytest.fixture
def hold_out_b_and_d(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_held_out", lambda groups, share, seed: np.array([group in "bd" for group in groups]))


@pytest.mark.usefixtures("hold_out_b_and_d")
def test_a_data_set_worked_out_by_hand() -> None:
    data = build("Tiny", ITEMS, seed=0, test_share=0.5)
    assert links(data, data.train) == {"a": {"b", "c"}, "c": {"a", "b", "f"}}
    assert list(data.label_texts or ()) == ["text a", "text b", "text c", "text f"]
    # b -> a leaves the truth, for a -> b is a training pair; d is no label, so d has no own pair
    assert links(data, data.test) == {"b": {"f"}, "d": {"b"}}
    assert filtered(data, data.test) == {("b", "a"), ("b", "b")}
    assert filtered(data, data.train) == {("a", "a"), ("c", "c")}
    assert data.notes == ("Items merged with another of the same text: 1.",)
    for split in (data.train, data.test):
        assert split.labels.dtype == np.float32 and split.labels.has_sorted_indices and set(split.labels.data) == {1.0}


@pytest.mark.usefixtures("hold_out_b_and_d")
def test_test_pairs_can_be_kept_at_the_cost_of_training_pairs() -> None:
    data = build("Tiny", ITEMS, seed=0, test_share=0.5, keep_test_pairs=True)
    assert links(data, data.train) == {"a": {"c"}, "c": {"a", "b", "f"}}  # a -> b went, c -> b has no reverse
    assert links(data, data.test) == {"b": {"a", "f"}, "d": {"b"}}
    assert filtered(data, data.test) == {("b", "b")}


def test_a_test_row_left_without_labels_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_held_out", lambda groups, share, seed: np.array([group == "b" for group in groups]))
    items = [Item("a", "one", ("b", "c")), Item("b", "two", ("a",)), Item("c", "three", ("a",))]
    data = build("Tiny", items, seed=0, test_share=0.5)
    assert len(data.test) == 0 and links(data, data.train) == {"a": {"b", "c"}, "c": {"a"}}
    assert data.test.filter is not None and len(data.test.filter) == 0


def ring(n: int, group_size: int = 1) -> list[Item]:
    """Each item links to the three after it and the one before."""
    return [
        Item(f"u{i:03}", f"text {i}", tuple(f"u{(i + step) % n:03}" for step in (-1, 1, 2, 3)), f"g{i // group_size}") for i in range(n)
    ]


def test_the_order_of_the_items_does_not_matter_but_the_seed_does() -> None:
    items = ring(60)
    shuffled = random.Random(1).sample(items, len(items))
    assert same(build("Ring", items, seed=3, test_share=0.3), build("Ring", shuffled, seed=3, test_share=0.3))
    assert not same(build("Ring", items, seed=3, test_share=0.3), build("Ring", items, seed=4, test_share=0.3))


def test_groups_stay_together_and_no_reciprocal_pair_is_left() -> None:
    data = build("Ring", ring(90, group_size=3), seed=0, test_share=0.3)
    groups = [{int(uid[1:]) // 3 for uid in split.uids or ()} for split in (data.train, data.test)]
    assert groups[0] and groups[1] and not groups[0] & groups[1]
    assert len(find_leaks(data).reciprocal) == 0
    assert data.label_counts().min() >= 1 and np.diff(data.test.labels.indptr).min() >= 1
    taken = filtered(data, data.test) - {(uid, uid) for uid in data.test.uids or ()}
    assert taken and all(row in links(data, data.train)[label] for row, label in taken)


def test_what_cannot_be_built_is_said() -> None:
    with pytest.raises(DataError, match="Lonely: no training row is left of 2 texts"):
        build("Lonely", [Item("a", "one", ()), Item("b", "two", ("z",))], seed=0, test_share=0.5)
    with pytest.raises(SettingError, match="test_share came as 1.5; wanted a share between 0 and 1"):
        build("Ring", ring(9), seed=0, test_share=1.5)


# ---- Debian ------------------------------------------------------------------------------------------------------------

INDEX = """\
Package: app
Source: app-src (1.2)
Version: 1.2-1
Pre-Depends: dpkg:any (>= 1.15)
Depends: gone | libb (>= 2) | liba,
 virtual-one [amd64], virtual-two, app-data (= 1.2)
Recommends: liba
Description: An application
 with a long description: that is not read
Tag: a::b,
 c::d

Package: app-data
Source: app-src
Description: An application (data)
Suggests: app

Package: dpkg
Description: Package manager

Package: liba
Description-en: Library A

Package: libb
Description: Library B
Provides: virtual-one (= 2), virtual-three

Package: libc
Description: Library C
Provides: virtual-two

Package: libd
Description: Library D
Provides: virtual-two

Package: liba
Version: 2
Description: Library A again
Depends: libc
"""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "Packages"
    path.write_text(INDEX)
    return path


def test_a_package_index_worked_out_by_hand(index: Path) -> None:
    packages = read_packages(index)
    assert [package.name for package in packages] == ["app", "app-data", "dpkg", "liba", "libb", "libc", "libd"]
    app, liba = packages[0], packages[3]
    assert app.source == "app-src" and app.description == "An application"
    assert app.asks == (("dpkg",), ("gone", "libb", "liba"), ("virtual-one",), ("virtual-two",), ("app-data",), ("liba",))
    assert liba.description == "Library A" and liba.asks == ()  # the first of two versions
    asked = asked_for(packages)
    # libb: the first alternative that exists, and the one provider of virtual-one; virtual-two has two; app-data is a sibling
    assert [packages[place].name for place in asked[0].indices] == ["dpkg", "liba", "libb"]
    assert asked[1].nnz == 0


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_index_reads_the_same(index: Path, suffix: str, pack: object) -> None:
    packed = index.with_suffix(suffix)
    packed.write_bytes(pack(index.read_bytes()))  # type: ignore[operator]
    assert read_packages(packed) == read_packages(index)
    packed.write_bytes(packed.read_bytes()[:40])
    with pytest.raises(DataError, match=f"Packages{suffix}: .*Wanted a Packages file, plain, .gz or .xz"):
        read_packages(packed)


def package(name: str, *asks: str, source: str = "") -> Package:
    return Package(name, source or name, f"about {name}", (), tuple((ask,) for ask in asks))


def names_of(packages: list[Package], max_labels: int = 10) -> dict[str, list[str]]:
    found = related(asked_for(packages), packages, max_labels)
    return {packages[row].name: [packages[place].name for place in found[row].indices] for row in range(len(packages)) if found[row].nnz}


def test_related_packages_are_those_asked_for_together() -> None:
    # a is asked for by x, y, z; b by x, y; c by z: cosine of a and b 2 / sqrt(3 * 2), of a and c 1 / sqrt(3 * 1)
    apps = [package("x", "a", "b"), package("y", "a", "b"), package("z", "a", "c")]
    packages = [package("a"), package("b"), package("c"), *apps]
    assert names_of(packages) == {"a": ["b", "c"], "b": ["a"], "c": ["a"]}
    assert names_of(packages, max_labels=1) == {"a": ["b"], "b": ["a"], "c": ["a"]}
    siblings = [package("a", source="ab"), package("b", source="ab"), package("c"), *apps]
    assert names_of(siblings) == {"a": ["c"], "c": ["a"]}


@pytest.mark.parametrize(("n_apps", "kept"), [(25, True), (26, False)])
def test_weakly_related_packages_are_left_out(n_apps: int, kept: bool) -> None:
    # rare is asked for once, with a, which n packages ask for: cosine 1 / sqrt(n), and 1 / sqrt(25) is the least that counts
    packages = [package("a"), package("rare"), package("z00", "a", "rare"), *(package(f"z{i:02}", "a") for i in range(1, n_apps))]
    assert names_of(packages) == ({"a": ["rare"], "rare": ["a"]} if kept else {})


def test_collections_relate_nothing_and_common_packages_are_no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"p{i:02}" for i in range(61)]
    packages = [*(package(name) for name in many), package("z-collection", *many)]
    assert names_of(packages) == {}
    assert len(names_of([*packages[:-1], package("z-collection", *many[:60])])) == 60
    monkeypatch.setattr(debian_module, "COMMON_FLOOR", 2)
    apps = [package("x", "libc", "b"), package("y", "libc", "b"), package("z", "libc")]
    asked = asked_for([package("b"), package("libc"), *apps])
    assert asked.toarray()[:, 0].sum() == 2 and asked.toarray()[:, 1].sum() == 0  # libc has three


@pytest.fixture
def larger_index(tmp_path: Path) -> Path:
    """40 sources with two packages each; package i asks for libraries i, i + 1 and i + 2 of 20, and library i for i + 1."""
    path = tmp_path / "Packages"
    with path.open("w") as file:
        for i in range(20):
            file.write(f"Package: lib{i}\nDescription: Library {i}\nDepends: lib{(i + 1) % 20}\n\n")
        for i in range(40):
            asks = ", ".join(f"lib{(i + step) % 20} (>= 1)" for step in range(3))
            for name in (f"app{i}", f"app{i}-extra"):
                file.write(f"Package: {name}\nSource: source{i}\nDescription: Application {i}\nDepends: {asks}\n\n")
    return path


def test_depends_is_split_by_source(larger_index: Path) -> None:
    data = debian("depends", larger_index)
    sources = [{uid.removesuffix("-extra") for uid in split.uids or ()} for split in (data.train, data.test)]
    assert len(data.test) and not sources[0] & sources[1]
    assert data.train.texts is not None and data.train.uids is not None
    place = list(data.train.uids).index(next(uid for uid in data.train.uids if uid.endswith("-extra")))
    number = int(data.train.uids[place].removeprefix("app").removesuffix("-extra"))
    assert data.train.texts[place] == f"app{number}-extra: Application {number}"
    wanted = {f"lib{(number + step) % 20}" for step in range(3)}
    assert links(data, data.train)[data.train.uids[place]] == wanted & set(data.label_uids or ())
    assert same(data, debian("depends", larger_index)) and not same(data, debian("depends", larger_index, seed=1))


def test_related_keeps_to_the_protocol(larger_index: Path) -> None:
    data = debian("related", larger_index)
    assert len(data.train) and len(find_leaks(data).reciprocal) == 0
    assert all(uid.startswith("lib") for uid in data.label_uids or ())
    described = debian(index=larger_index, with_name=False)
    assert set(described.label_texts or ()) <= {f"Library {i}" for i in range(20)}
    assert same(data, debian("related", larger_index))


def test_wrong_settings_for_debian_are_named(index: Path) -> None:
    with pytest.raises(UnknownName, match="No task called 'dependent'. Did you mean 'depends'"):
        debian("dependent", index)
    with pytest.raises(SettingError, match="with_name and max_labels are for 'related'"):
        debian("depends", index, with_name=False)
    with pytest.raises(SettingError, match="max_labels came as 0; wanted 1 or more"):
        debian("related", index, max_labels=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Package: a\nDescription: b\nno field here\n", r"Packages:3: 'no field here' came; wanted 'Field: value'\.$"),
        ("Package: a\n\n continued\n", r"Packages:3: ' continued' came at the beginning of a stanza"),
        ("Package: a\nDescription: b\n\nVersion: 1\nDescription: c\n", "Packages:4: a stanza without a Package field came, with D"),
        ("a\nb\n", r"Packages:1: 'a' came; wanted 'Field: value'\. \(2 lines with this fault\)"),
        ("\n", r"Packages: no package came\. .*apt-get update; .*longtail data synth"),
    ],
)
def test_a_broken_index_is_answered_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "Packages"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_packages(path)
    assert "\n" not in str(caught.value)


def test_an_index_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="Packages: No such file or directory. Wanted a Packages file"):
        read_packages(tmp_path / "Packages")
    with pytest.raises(DataError, match=r"\.lz4 is not read here"):
        read_packages(tmp_path / "Packages.lz4")
    monkeypatch.setattr(shutil, "which", lambda command: None)
    with pytest.raises(DataError, match="apt-cache is not installed here. .*longtail data synth"):
        debian()


def test_apt_is_asked_where_no_index_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "apt-cache"
    monkeypatch.setattr(shutil, "which", lambda name: str(command))
    command.write_text('#!/bin/sh\ntest "$1" = dumpavail && printf "Package: a\\nDescription: b\\n"\n')
    command.chmod(0o755)
    assert read_packages() == [Package("a", "a", "b", (), ())]
    command.write_text("#!/bin/sh\n")
    with pytest.raises(DataError, match="^apt-cache dumpavail: no package came. .*apt-get update"):
        read_packages()
    command.write_text("#!/bin/sh\necho broken lists >&2\nexit 100\n")
    with pytest.raises(DataError, match=r"apt-cache dumpavail failed \(broken lists\)"):
        read_packages()


# ---- WordNet -----------------------------------------------------------------------------------------------------------

LICENCE = "  1 This software and database is provided\n  2 as is\n"
SYNSETS = {
    "data.noun": "00000100 03 n 01 entity 0 002 ~ 00000200 n 0000 ~ 00000300 n 0000 | that which exists  \n"
    '00000200 03 n 02 object 0 physical_object 0 002 @ 00000100 n 0000 + 00000100 v 0101 | a visible entity; "it was full"; "x"  \n'
    "00000300 03 n 01 thing 0 001 @ 00000100 n 0000 | a separate entity;  \n",
    "data.verb": "00000100 29 v 0a a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j_k 0 001 + 00000200 n 0101 01 + 02 00 | argue  \n",
    "data.adj": "00000100 00 a 01 alive(p) 0 001 & 00000200 s 0000 | living\n"
    '00000200 00 s 01 live 0 001 & 00000100 a 0000 |  alive ; "a live cat"\n',
    "data.adv": "00000100 02 r 01 truly 0 000 | in truth\n",
}


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    for name, text in SYNSETS.items():
        (tmp_path / name).write_text(LICENCE + text)
    return tmp_path


def test_wordnet_worked_out_by_hand(dictionary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_held_out", lambda groups, share, seed: np.array([group == "n00000200" for group in groups]))
    data = wordnet(dictionary)
    # n200 -> n100 and v100 is tested, so n100 -> n200 and v100 -> n200 are not trained on; v100 is then no label either
    assert links(data, data.train) == {
        "n00000100": {"n00000300"}, "n00000300": {"n00000100"}, "a00000100": {"a00000200"}, "a00000200": {"a00000100"},
    }  # fmt: skip
    assert links(data, data.test) == {"n00000200": {"n00000100"}}
    assert list(data.test.texts or ()) == ["object, physical object : a visible entity"]
    assert list(data.label_texts or ()) == ["alive : living", "live : alive", "entity : that which exists", "thing : a separate entity"]
    assert data.notes == ("7 synsets read.",)


def test_words_are_counted_in_hexadecimal(dictionary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_held_out", lambda groups, share, seed: np.array([group == "n00000300" for group in groups]))
    data = wordnet(dictionary)
    assert "a, b, c, d, e, f, g, h, i, j k : argue" in list(data.train.texts or ())
    assert same(data, wordnet(dictionary))


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "00000400 03 n 02 one_word 0 000 | two were promised",
        "00000400 03 n 01 thing 0 002 @ 00000100 n 0000 | two pointers were promised",
        "00000400 03 n 01 thing 0 001 @ 00000100 x 0000 | no such part of speech",
        "00000400 03 n 01 thing 0 000 no gloss",
        "00000400 03 n zz thing 0 000 | no number",
    ],
)
def test_a_broken_synset_is_named_by_file_and_line(dictionary: Path, line: str) -> None:
    with (dictionary / "data.noun").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"data\.noun:6: '.*' came; wanted a synset: offset file type [^\n]*$"):
        wordnet(dictionary)


def test_an_incomplete_wordnet_is_named(dictionary: Path) -> None:
    (dictionary / "data.verb").write_text(LICENCE)
    with pytest.raises(DataError, match="n00000200 points to v00000100, which no file holds"):
        wordnet(dictionary)
    (dictionary / "data.verb").unlink()
    with pytest.raises(DataError, match=r"data\.verb does not exist.*apt-get install wordnet-base"):
        wordnet(dictionary)
    with pytest.raises(DataError, match="is not a folder. Wanted WordNet's dict folder"):
        wordnet(dictionary / "none")


# ---- manual pages ------------------------------------------------------------------------------------------------------

ROFF = r"""'\" t
.\" a comment
.TH FOO 1 2024 "" ""
.de XX
.SH NAME
wrong \- within a macro
..
.SH "NAME"
\fBfoo\fR, foo\-ng \- do \(lqthings\(rq \(em
quickly
.PP
Not part of the title (1).
.SH DESCRIPTION
See
.BR nothing (1).
.SH SEE ALSO
.BR bar (1),
.BR "baz qux" ,
\fBfrob\fP\|(8), https://example.org/page(3),
\f(CWSome::Module\fR and
.IR missing (7)
.UR http://example.org/other(1)
.UE
.SH "BUGS"
.BR nothing (2)
"""

MDOC = r""".Dd July 1, 2024
.Dt BAR 1
.Sh NAME
.Nm bar ,
.Nm barr
.Nd "the bar" of
.Em all
.Sh SEE ALSO
.Xr foo 1 ,
.Xr frob 8
.Rs
.%T A Book (3)
.Re
"""


def test_a_page_in_man_macros() -> None:
    page = parse_page(ROFF)
    assert page.title == "foo - do “things” — quickly" and page.names == ("foo", "foo-ng")
    assert page.see_also == (("bar", "1"), ("frob", "8"), ("Some::Module", ""), ("missing", "7"))


def test_a_page_in_mdoc_macros() -> None:
    page = parse_page(MDOC)
    assert page.title == "bar - the bar of all" and page.names == ("bar", "barr")
    assert page.see_also == (("foo", "1"), ("frob", "8"))


@pytest.mark.parametrize(
    ("name_section", "title"),
    [
        ("tool \\- does it", "tool - does it"),
        ("tool -- does it - well", "tool - does it - well"),
        ("tool \\(em does it", "tool - does it"),
        ("tool\n\\- does\nit.", "tool - does it."),
        (".B tool\n\\- \\fIdoes\\fP \\s-1IT\\s0", "tool - does IT"),
        ('Foo::Bar \\- \\*(L"Quoted\\*(R" \\*(C+', 'Foo::Bar - "Quoted" C++'),
        ("The tool \\- does it", ""),  # a sentence, no name
        ("tool does it", ""),
        ("tool \\-", ""),
    ],
)
def test_titles(name_section: str, title: str) -> None:
    assert parse_page(f".TH X 1\n.SH NAME\n{name_section}\n.SH OTHER\n").title == title


def test_redirects_and_escapes() -> None:
    assert parse_page('.\\" generated\n\n.so man3/printf.3\n').redirect == "man3/printf.3"
    assert parse_page(".so man.macros\n.SH NAME\na \\- b\n").title == "a - b"
    assert plain(r"\fB\-\-all\fR=\fIx\fR \(aqy\(aq \[u00E9]\e \h'1n'z\" gone") == "--all=x 'y' é\\ z"


PAGES = {
    "man1/foo.1": ROFF.encode(),
    "man1/bar.1.gz": gzip.compress(MDOC.encode()),
    "man8/frob.8": ".TH FROB 8\n.SH NAME\nfrob \\- caf\xe9\n.SH SEE ALSO\n.BR foo-ng (1), alias (1), circle (1)\n".encode("latin-1"),
    "man1/alias.1": b".so man1/bar.1\n",
    "man1/circle.1": b".so man1/circle.1\n",
    "man3/Some::Module.3pm": b".SH NAME\nSome::Module \\- a module\n.SH SEE ALSO\nfoo(1)\n",
    "man1/untitled.1": b".TH UNTITLED 1\n",
    "de/man1/foo.1": ROFF.encode(),
    "README": b"no page",
}
ANSWER = {
    "foo(1)": {"bar(1)", "frob(8)", "Some::Module(3pm)"},
    "bar(1)": {"foo(1)", "frob(8)"},
    "frob(8)": {"foo(1)", "bar(1)"},  # foo-ng by the names that foo says it has, bar by the redirect of alias
    "Some::Module(3pm)": {"foo(1)"},
}


@pytest.fixture
def train_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_held_out", lambda groups, share, seed: np.zeros(len(groups), bool))


def write_tree(root: Path) -> Path:
    for name, data in PAGES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.mark.usefixtures("train_on_everything")
def test_an_installed_tree(tmp_path: Path) -> None:
    data = man(write_tree(tmp_path))
    assert links(data, data.train) == ANSWER
    assert list(data.label_texts or ()) == ["Some::Module - a module", "bar - the bar of all", "foo - do “things” — quickly", "frob - café"]
    assert data.notes == ("5 pages read, 1 of them without a title line.",)


@pytest.mark.usefixtures("train_on_everything")
def test_links_between_installed_pages(tmp_path: Path) -> None:
    root = write_tree(tmp_path)
    (root / "man1/alias.1").unlink()
    (root / "man1/alias.1").symlink_to("bar.1.gz")
    (root / "man1/dangling.1").symlink_to("nowhere.1")
    data = man(root)
    assert links(data, data.train) == ANSWER


def deb(path: Path, packing: str, links_to: dict[str, str] | None = None, pages: dict[str, bytes] | None = None) -> None:
    """A Debian package as dpkg-deb writes it, with what longtail reads of one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{packing}") as tar:  # type: ignore[call-overload]
        for name, data in (PAGES if pages is None else pages).items():
            member = tarfile.TarInfo(f"./usr/share/man/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links_to or {}).items():
            member = tarfile.TarInfo(f"./usr/share/man/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    name = f"data.tar.{packing}".rstrip(".")
    archive(path, [("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, buffer.getvalue())])


def archive(path: Path, members: list[tuple[str, bytes]]) -> None:
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, data in members:
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2))


@pytest.mark.usefixtures("train_on_everything")
@pytest.mark.parametrize("packing", ["", "gz", "xz"])
def test_a_folder_of_packages(tmp_path: Path, packing: str) -> None:
    rest = {name: data for name, data in PAGES.items() if name != "man1/alias.1"}
    deb(tmp_path / "some_1_all.deb", packing, {"man1/alias.1.gz": "bar.1.gz"}, rest)
    deb(tmp_path / "other_1_all.deb", packing, pages={"man7/lonely.7": b".SH NAME\nlonely \\- alone\n"})
    data = man(tmp_path)
    assert links(data, data.train) == ANSWER
    assert data.notes[0] == "6 pages read, 1 of them without a title line."


def test_packages_packed_with_zstd_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb(tmp_path / "a.deb", "xz")
    archive(tmp_path / "b.deb", [("data.tar.zst", b"never looked at")])
    monkeypatch.setattr(manual_pages.shutil, "which", lambda command: None)
    notes = man(tmp_path).notes
    assert ".deb files left out, packed with zstd where no dpkg-deb is installed to unpack them: 1." in notes


def test_zstd_is_left_to_dpkg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb(tmp_path / "plain.deb", "")
    unpacked = tmp_path / "unpacked"
    unpacked.write_bytes(next(data for name, data in manual_pages._members(tmp_path / "plain.deb") if name == "data.tar"))
    command = tmp_path / "dpkg-deb"
    command.write_text(f'#!/bin/sh\ntest "$1" = --fsys-tarfile && exec cat {unpacked}\n')
    command.chmod(0o755)
    archive(tmp_path / "plain.deb", [("data.tar.zst", b"zstd")])
    monkeypatch.setattr(manual_pages.shutil, "which", lambda name: str(command))
    monkeypatch.setattr(building, "_held_out", lambda groups, share, seed: np.zeros(len(groups), bool))
    data = man(tmp_path)
    assert links(data, data.train) == ANSWER


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "bad.deb: not an ar archive. Wanted a Debian package"),
        (b"!<arch>\nshort header", "bad.deb: the archive is damaged or cut short"),
        (b"!<arch>\n" + b"data.tar.xz     0           0     0     100644  90        `\n" + b"too little", "damaged or cut short"),
        (b"!<arch>\n" + b"debian-binary   0           0     0     100644  4         `\n2.0\n", "bad.deb: no data.tar within"),
        (b"!<arch>\n" + b"data.tar.rar    0           0     0     100644  4         `\nabcd", "bad.deb: data.tar.rar came; wanted"),
        (b"!<arch>\n" + b"data.tar.xz     0           0     0     100644  4         `\nabcd", "bad.deb: the files within are damaged"),
    ],
)
def test_a_broken_package_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.deb").write_bytes(content)
    with pytest.raises(DataError, match=message):
        man(tmp_path)


def test_a_package_cut_short_within(tmp_path: Path) -> None:
    deb(tmp_path / "cut.deb", "xz", pages={f"man1/page{i}.1": random.Random(i).randbytes(5000) for i in range(20)})
    members = list(manual_pages._members(tmp_path / "cut.deb"))
    archive(tmp_path / "cut.deb", [(name, data[: len(data) // 2]) for name, data in members])
    with pytest.raises(DataError, match="cut.deb: the files within are damaged"):
        man(tmp_path)


def test_folders_without_pages(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no manual page with a title came"):
        man(tmp_path)
    with pytest.raises(DataError, match="is not a folder. Wanted one with man1"):
        man(tmp_path / "none")
    (tmp_path / "man1").mkdir()
    (tmp_path / "man1/x.1.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"x\.1\.gz: the gzip data is damaged"):
        man(tmp_path)


def test_manual_pages_split_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "man1").mkdir()
    for i in range(40):
        see = ", ".join(f"page{(i + step) % 40}(1)" for step in (1, 2, 3))
        (tmp_path / f"man1/page{i}.1").write_text(f".SH NAME\npage{i} \\- page number {i}\n.SH SEE ALSO\n{see}\n")
    data = man(tmp_path)
    assert len(data.test) and len(find_leaks(data).reciprocal) == 0
    assert same(data, man(tmp_path)) and not same(data, man(tmp_path, seed=1))
