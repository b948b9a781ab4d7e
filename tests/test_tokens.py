"""Tokens: worked out by hand, against plain second versions, and through files."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from tokenizers import models

from longtail.core.errors import DataError, SettingError
from longtail.core.kernels.tokens import PIECE_KINDS, WORD_KINDS, unit_weights
from longtail.core.values import Texts
from longtail.tokens import tokenizer as module
from longtail.tokens import wordpiece
from longtail.tokens.both import WordsAndPieces
from longtail.tokens.cache import cached_rows
from longtail.tokens.load import load_tokenizer
from longtail.tokens.pairs import PairCounts
from longtail.tokens.rows import TokenRows
from longtail.tokens.table import WordTable, filled_slots
from longtail.tokens.tokenizer import Tokenizer, TokenSettings
from longtail.tokens.word_vectors import pretrained_vectors
from longtail.tokens.wordpiece import WordPiece
from longtail.tokens.words import WORD, Words

# few different words, so that they come again; capitals, blanks, marks, control characters and letters of all widths between them
odd = st.sampled_from(
    ["\x00", "\x0b", "\x1c", "\x7f", "\x85", "\xa0", "_", "-", "##", "É", "é", "e\u0301", "İ", "ΑΣ", "ß", "漢字", "–", "🍐", "ﬁ"]
)
pieces = st.one_of(st.sampled_from(["red", "Red", "apple", "a1", " ", "  ", "!", "\t", "\n"]), odd, st.text(max_size=3))
texts_of_pieces = st.lists(st.lists(pieces, max_size=8).map("".join), min_size=1, max_size=6)


def naive_words(texts: list[str], settings: Words) -> tuple[list[str], list[list[str]]]:
    """The vocabulary of the texts and their tokens, with `re` and dictionaries."""
    cut = [WORD.findall(text.lower()) for text in Texts.of(texts)]
    counts = Counter(word for words in cut for word in words)
    words = sorted((word for word in counts if counts[word] >= settings.min_count), key=lambda word: -counts[word])  # stable: by first
    place = {word: number for number, word in enumerate(words)}
    pairs: Counter[tuple[str, str]] = Counter()
    if settings.ngrams == 2:
        pairs.update(pair for row in cut for pair in zip(row, row[1:], strict=False) if pair[0] in place and pair[1] in place)
    frequent = [pair for pair in pairs if pairs[pair] >= settings.ngram_count]
    frequent.sort(key=lambda pair: (-pairs[pair], place[pair[0]], place[pair[1]]))
    ranked: list[tuple[int, str]] = [(counts[word], word) for word in words] + [(pairs[pair], " ".join(pair)) for pair in frequent]
    if settings.size is not None:
        kept = {name for _, name in sorted(ranked, key=lambda entry: -entry[0])[: settings.size - 1]}
        ranked = [entry for entry in ranked if entry[1] in kept]
    known = {name for _, name in ranked}
    rows = []
    for words_of_text in cut:
        places = [number for number, word in enumerate(words_of_text) if word in known][: settings.max_tokens]
        row = [words_of_text[number] for number in places]
        row += [
            f"{words_of_text[one]} {words_of_text[other]}"
            for one, other in zip(places, places[1:], strict=False)
            if other == one + 1 and f"{words_of_text[one]} {words_of_text[other]}" in known
        ]
        rows.append(row)
    return [name for _, name in ranked], rows


def token_names(tokenizer: Tokenizer, rows: TokenRows) -> list[list[str]]:
    names = tokenizer.names()
    return [[names[token] for token in rows.ids[start:stop]] for start, stop in zip(rows.offsets, rows.offsets[1:], strict=False)]


def same(first: TokenRows, second: TokenRows) -> bool:
    arrays = all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ("ids", "weights", "offsets"))
    return arrays and (first.n_tokens, first.n_bigrams) == (second.n_tokens, second.n_bigrams)


# --- weights


def test_idf_and_weights_by_hand() -> None:
    """Three texts: red is in two of them, apple in two, juice in one. idf = log((1 + 3) / (1 + df)) + 1."""
    tokenizer = Words().fit(["red apple", "apple apple juice", "red"])
    two, one = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    assert tokenizer.names() == ["[PAD]", "apple", "red", "juice"]  # 3, 2 and 1 occurrences
    assert tokenizer.n_tokens == 4 and tokenizer.idf.dtype == np.float32
    assert np.allclose(tokenizer.idf, [0, two, two, one])
    rows = tokenizer(["red apple", "apple juice, apple", "", "pear"])
    assert rows.ids.tolist() == [2, 1, 1, 3, 1] and rows.offsets.tolist() == [0, 2, 5, 5, 5]
    # the summed second row is (apple: 2 two, juice: one), and each apple carries half of its weight
    length = math.sqrt((2 * two) ** 2 + one**2)
    assert np.allclose(rows.weights, [math.sqrt(0.5), math.sqrt(0.5), two / length, one / length, two / length])
    assert np.allclose(rows.to_csr()[1].toarray(), [[0, 2 * two / length, 0, one / length]])
    assert repr(rows) == "TokenRows(4 rows, 5 tokens of 3)"


@given(st.lists(st.lists(st.integers(1, 5), max_size=9), max_size=5))
def test_weights_equal_the_naive_version(rows: list[list[int]]) -> None:
    idf = np.array([0, 1, 1.5, 2, 3.25, 7], np.float32)
    ids = np.array([token for row in rows for token in row], np.int32)
    found = unit_weights(ids, np.cumsum([0, *map(len, rows)]), idf)
    lengths = [math.sqrt(sum((count * idf[token]) ** 2 for token, count in Counter(row).items())) for row in rows]
    assert np.allclose(found, [idf[token] / length for row, length in zip(rows, lengths, strict=True) for token in row])


@given(texts_of_pieces)
def test_idf_counts_the_texts_of_a_token(texts: list[str]) -> None:
    settings = Words(ngrams=2, ngram_count=1, max_tokens=2)
    names, _ = naive_words(texts, settings)
    if names:
        _, rows = naive_words(texts, Words(ngrams=2, ngram_count=1, max_tokens=10_000))  # idf looks at whole texts
        df = Counter(name for row in rows for name in set(row))
        expected = [math.log((1 + len(texts)) / (1 + df[name])) + 1 for name in names]
        assert np.allclose(settings.fit(texts).idf[1:], expected)


# --- words


@given(
    texts_of_pieces,
    texts_of_pieces,
    st.builds(
        Words,
        min_count=st.integers(1, 3),
        ngrams=st.integers(1, 2),
        ngram_count=st.integers(1, 2),
        size=st.none() | st.integers(2, 9),
        max_tokens=st.integers(1, 12),
    ),
)
@example(["ΑΣ Σ", "İ i̇"], ["ας"], Words())
@example(["a b", "c", "a b"], ["a x b a b"], Words(ngrams=2))
@example(["a a a", "b"], ["a a a"], Words(min_count=2, ngrams=2, size=3))
def test_words_equal_re(texts: list[str], others: list[str], settings: Words) -> None:
    names, _ = naive_words(texts, settings)
    if not names:
        with pytest.raises(DataError, match="holds a word"):
            settings.fit(texts)
        return
    tokenizer = settings.fit(texts)
    assert tokenizer.names()[1:] == names
    _, rows = naive_words(texts, settings)
    assert token_names(tokenizer, tokenizer(texts)) == rows
    # texts that fit has not seen: the words of the naive version that are known, pairs only where nothing stands between
    cut = [WORD.findall(text.lower()) for text in Texts.of(others)]
    words = [[word for word in row if word in names][: settings.max_tokens] for row in cut]
    assert token_names(tokenizer, tokenizer(others).unigrams()) == words


def test_bigrams_stand_behind_the_words() -> None:
    tokenizer = Words(ngrams=2).fit(["new york city", "new york pizza", "pizza city"])
    assert tokenizer.names() == ["[PAD]", "new", "york", "city", "pizza", "new york"]  # "york city" occurs once
    rows = tokenizer(["Pizza, New York", "new big york", "new york new york"])
    assert rows.ids.tolist() == [4, 1, 2, 5, 1, 2, 1, 2, 1, 2, 5, 5]  # "big" is unknown and still stands between
    assert rows.offsets.tolist() == [0, 4, 6, 12]
    assert rows.n_tokens == 6 and rows.n_bigrams == 1
    assert np.allclose(np.sqrt(rows.to_csr().power(2).sum(axis=1)), 1)
    words = rows.unigrams()
    assert words.ids.tolist() == [4, 1, 2, 1, 2, 1, 2, 1, 2] and words.offsets.tolist() == [0, 3, 5, 9]
    assert words.n_tokens == 5 and words.unigrams() is words
    assert Words(ngrams=2, max_tokens=2).fit(["new york", "new york"])(["york new york"]).ids.tolist() == [2, 1]  # cut before the pair


def test_size_keeps_the_most_frequent() -> None:
    texts = ["a b", "a b", "a b c", "a"]  # a 4, b 3, "a b" 3, c 1
    assert Words(ngrams=2, size=3).fit(texts).names() == ["[PAD]", "a", "b"]
    assert Words(ngrams=2, size=4).fit(texts).names() == ["[PAD]", "a", "b", "a b"]
    assert Words(min_count=2).fit(texts).names() == ["[PAD]", "a", "b"]


def test_words_beyond_ascii() -> None:
    tokenizer = Words().fit(["Crème brûlée – 2€", "МОСКВА", "東京 タワー", "plain text"])
    assert tokenizer.names()[1:] == ["crème", "brûlée", "–", "2", "€", "москва", "東京", "タワー", "plain", "text"]
    assert tokenizer(["москва, CRÈME 東京"]).ids.tolist() == [6, 1, 7]


def test_many_words_make_the_table_grow() -> None:
    words = [f"w{number}" for number in range(5000)]
    table = WordTable(WORD_KINDS)
    for start in range(0, 5000, 7):  # in small steps, each word twice
        texts = Texts.of([" ".join(words[start : start + 7])] * 2)
        numbers, offsets = table.add(texts.buffer, texts.offsets[:-1], texts.offsets[1:])
        expected = [*range(start, min(start + 7, 5000))]
        assert numbers.tolist() == expected * 2 and offsets.tolist() == [0, len(expected), 2 * len(expected)]
    assert len(table) == 5000 and list(table.words()) == words


def test_words_of_one_hash_are_told_apart() -> None:
    def add(table: WordTable, word: str) -> list[int]:
        texts = Texts.of([word])
        return table.add(texts.buffer, texts.offsets[:-1], texts.offsets[1:])[0].tolist()

    first, second = WordTable(WORD_KINDS), WordTable(WORD_KINDS)
    add(first, "ab")
    add(second, "cd")
    first._hashes[0] = second._hashes[0]  # as if "ab" had the hash of "cd"
    first._slots = filled_slots(first._hashes[:1], 8)
    assert add(first, "cd ab cd") == [1, 2, 1]  # "ab" is not found under its own hash and comes again


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6), st.sampled_from([0, 3, 1 << 22]))
def test_pair_counts(blocks: list[list[int]], waiting: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longtail.tokens.pairs.WAITING", waiting)
        counts = PairCounts()
        for block in blocks:
            counts.add(*np.unique(np.array(block, np.int64), return_counts=True))
        keys, found = counts.done()
    assert dict(zip(keys.tolist(), found.tolist(), strict=True)) == Counter(key for block in blocks for key in block)
    assert keys.tolist() == sorted(keys.tolist())


# --- pieces


def library_rows(names: list[str], texts: list[str], most: int) -> list[list[int]]:
    """What the library says of whole texts, one by one."""
    library = wordpiece._library(models.WordPiece({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    return [[token for token in library.encode(text, add_special_tokens=False).ids if token != 1][:most] for text in Texts.of(texts)]


PIECE_TEXTS = ["red apple", "Red Apples!", "crème brûlée", "reddish-appled", "漢字 red", "a1 ΑΣ", "re_d"]


@given(texts_of_pieces, st.integers(1, 12))
@example(["a\x00pple", "re\x0bd a\x1cb", "e\u0301 \u0301a", "[PAD] [UNK] ##red"], 12)
@example(["re" * 50, "re" * 50 + "d", "#red ##d d## _re_ re\x7fd red\tred\r\nred"], 100)
def test_pieces_equal_the_library(texts: list[str], most: int) -> None:
    tokenizer = WordPiece(size=80, max_tokens=most).fit(PIECE_TEXTS)
    expected = library_rows(tokenizer.names(), texts, most)
    for cut in (tokenizer.cutter.cut(Texts.of(texts), most), next(tokenizer.cutter.cut_blocks([Texts.of(texts)], most))):
        ids, offsets = cut
        assert [ids[start:stop].tolist() for start, stop in zip(offsets, offsets[1:], strict=False)] == expected
        assert not len(ids) or ids.min() > 1  # neither padding nor [UNK]


def test_pieces_by_hand() -> None:
    tokenizer = WordPiece(size=60).fit(["tea", "tea", "teas", "teas", "pot", "teapot"])
    names = tokenizer.names()
    assert names[:2] == ["[PAD]", "[UNK]"] and {"tea", "##s", "p", "##pot"} & set(names) >= {"tea", "##s", "p"}
    assert token_names(tokenizer, tokenizer(["TÉA  teas", "z", "tea z tea"])) == [["tea", "teas"], [], ["tea", "tea"]]
    assert tokenizer.n_tokens == len(names) <= 60
    assert "".join(token_names(tokenizer, tokenizer(["potato"]))[0]) != "potato"  # no piece holds "potato"; it is spelt
    assert all(name.startswith("##") for name in token_names(tokenizer, tokenizer(["postea"]))[0][1:])


def test_words_are_remembered_across_blocks_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = WordPiece(size=80).fit(PIECE_TEXTS)
    blocks = [Texts.of(PIECE_TEXTS), Texts.of(["apple red", ""]), Texts.of(["brulee 漢"]), Texts.of(PIECE_TEXTS[::-1])]
    expected = [library_rows(tokenizer.names(), list(block), 64) for block in blocks]
    for most_pieces in (1 << 22, 3):
        monkeypatch.setattr(wordpiece, "MOST_PIECES", most_pieces)
        found = tokenizer.cutter.cut_blocks(blocks, 64)
        assert [[ids[a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)] for ids, ends in found] == expected
    met = wordpiece.MetWords()
    for block in blocks:
        met.numbers(block, tokenizer.cutter.pieces)  # type: ignore[attr-defined]
    assert len(met.ends) - 1 == 15  # distinct words and marks of the last block; "brulee" of the block before is forgotten
    many = PIECE_TEXTS * 10  # more than FEW
    assert token_names(tokenizer, tokenizer(many)) == token_names(tokenizer, tokenizer(PIECE_TEXTS)) * 10


def test_training_on_pieces_is_the_same_every_time() -> None:
    """All pairs of letters equally frequent: every merge is a tie."""
    letters = "abcdefghijkl"
    texts = [one + other + third for one in letters for other in letters for third in letters[:4]]
    first = WordPiece(size=60).fit(texts)
    for _ in range(4):
        assert WordPiece(size=60).fit(texts).names() == first.names()
    assert first.n_tokens == 60  # so that some of the equal ones were left out


def test_rare_letters_leave_room_for_pieces() -> None:
    texts = ["tea"] * 5 + [chr(code) for code in range(0x4E00, 0x4E00 + 200)]
    tokenizer = WordPiece(size=40).fit(texts)
    assert tokenizer.n_tokens <= 40 and "tea" in tokenizer.names()
    assert len(tokenizer([chr(0x4E00)]).ids) == 1 and not len(tokenizer([chr(0x4E00 + 199)]).ids)  # among equals the first by code point


# --- words and pieces

TEA_NAMES = ["[PAD]", "tea", "pot", "~", "~tea", "~pot", "~##pot", "~##s", "~~", "tea pot"]


def tea(idf: list[float] | None = None, **settings: Any) -> Tokenizer:
    made = WordsAndPieces(ngrams=2, **settings)
    return Tokenizer(made, made.cutter(TEA_NAMES), np.array(idf or [0] + [1] * 9, np.float32))


def test_pieces_stand_behind_the_words() -> None:
    tokenizer = tea()
    rows = tokenizer(["Tea pot", "teapots tea", "", "teas", "pot ~ teapot", "cup"])
    assert token_names(tokenizer, rows) == [
        ["tea", "pot", "tea pot"],  # both words are pieces: nothing to add
        ["tea", "~tea", "~##pot", "~##s"],  # the piece begins "teapots"; that of the word "tea" is left out
        [],
        ["~tea", "~##s"],
        ["pot", "~", "~tea", "~##pot"],
        [],
    ]
    assert (rows.n_tokens, rows.n_bigrams) == (10, 1)
    assert token_names(tokenizer, rows.unigrams())[:2] == [["tea", "pot"], ["tea", "~tea", "~##pot", "~##s"]]


def test_a_piece_is_left_out_for_a_word_of_its_text_only() -> None:
    tokenizer = tea()
    # "téa" and "tea_pot" are other words, unknown here; their pieces stay, and one is left out for the word "tea"
    assert token_names(tokenizer, tokenizer(["téa", "téa tea", "tea_pot", "tea", "tea tea"])) == [
        ["~tea"],
        ["tea", "~tea"],
        ["~tea", "~pot"],
        ["tea"],
        ["tea", "tea"],
    ]


def test_each_kind_has_its_own_room() -> None:
    tokenizer = tea(max_tokens=2)
    # the third word is cut off, so that its piece says something; pieces left out take no room
    assert token_names(tokenizer, tokenizer(["tea tea pot", "tea tea teapots", "pot tea teapot teas"])) == [
        ["tea", "tea", "~pot"],
        ["tea", "tea", "~tea", "~##pot"],
        ["pot", "tea", "~tea", "~##pot"],
    ]
    # cut after the first piece of "teapot": still not the word "tea"
    tokenizer = tea(max_tokens=1)
    assert token_names(tokenizer, tokenizer(["tea teapot", "teapot tea"])) == [["tea", "~tea"], ["tea", "~tea"]]


def test_weights_of_words_and_pieces_by_hand() -> None:
    """Four texts. The word tea is in two of them; the piece stands in the last alone, where no word says it."""
    texts = ["tea", "tea pot", "pot", "teapot"]
    tokenizer = WordsAndPieces(pieces_size=60).fit(texts)
    idf = dict(zip(tokenizer.names(), tokenizer.idf.tolist(), strict=True))
    assert tokenizer.names()[:4] == ["[PAD]", "tea", "pot", "teapot"] and all(name[0] == "~" for name in tokenizer.names()[4:])
    none, one, two = (math.log(5 / (1 + df)) + 1 for df in (0, 1, 2))
    assert idf["tea"] == pytest.approx(two) and idf["teapot"] == pytest.approx(one)
    assert idf["~tea"] == pytest.approx(one) and idf["~pot"] == pytest.approx(none) and idf["[PAD]"] == 0
    rows = tokenizer(["tea teapot"])
    assert token_names(tokenizer, rows) == [["tea", "teapot", "~tea", "~##p", "~##ot"]]
    length = math.sqrt(two**2 + 4 * one**2)
    assert np.allclose(rows.weights, np.array([two, one, one, one, one]) / length)


def naive_both(word_rows: list[list[str]], piece_names: list[str], texts: list[str], settings: WordsAndPieces) -> list[list[str]]:
    """Tokens of texts whose words are known; the library tells which pieces are of one word."""
    library = wordpiece._library(models.WordPiece({name: place for place, name in enumerate(piece_names)}, unk_token="[UNK]"))
    rows = []
    for text, row in zip(Texts.of(texts), word_rows, strict=True):
        encoded = library.encode(text, add_special_tokens=False)
        n_pieces = Counter(encoded.word_ids)
        said = Counter(row)
        pieces = []
        for token, name, word in zip(encoded.ids, encoded.tokens, encoded.word_ids, strict=True):
            if n_pieces[word] == 1 and said[name]:
                said[name] -= 1
            elif token != 1:
                pieces.append(f"~{name}")
        rows.append(row + pieces[: settings.max_tokens])
    return rows


both_settings = st.builds(
    WordsAndPieces,
    min_count=st.integers(1, 2),
    ngrams=st.integers(1, 2),
    ngram_count=st.integers(1, 2),
    pieces_size=st.integers(20, 60),
    piece_min_count=st.integers(1, 2),
    max_tokens=st.integers(1, 12),
)


@given(texts_of_pieces, texts_of_pieces, both_settings)
@example(["red", "apple red"], ["~red apple ~", "re_d red", "don\u2019t"], WordsAndPieces(pieces_size=60))
def test_words_and_pieces_equal_the_naive_version(texts: list[str], others: list[str], settings: WordsAndPieces) -> None:
    known = [*texts, "~ red ~", "~ red"]  # with a bigram that begins like the name of a piece
    every = [*known, *others]
    tokenizer = settings.fit(known)
    rows = tokenizer(every)
    words = Words(settings.min_count, settings.ngrams, settings.ngram_count, max_tokens=settings.max_tokens).fit(known)
    piece_names = WordPiece(settings.pieces_size, settings.piece_min_count).fit(known).names()
    assert token_names(tokenizer, rows) == naive_both(token_names(words, words(every)), piece_names, every, settings)
    ids, ends = next(iter(tokenizer.cutter.cut_blocks([Texts.of(every)], settings.max_tokens)))
    assert np.array_equal(ids, rows.ids) and np.array_equal(ends, rows.offsets)
    whole = replace(settings, max_tokens=10_000)  # idf looks at whole texts
    ids, ends = words.cutter.cut(Texts.of(known), whole.max_tokens)
    whole_rows = [[words.names()[token] for token in ids[start:stop]] for start, stop in zip(ends, ends[1:], strict=False)]
    df = Counter(name for row in naive_both(whole_rows, piece_names, known, whole) for name in set(row))
    expected = [math.log((1 + len(known)) / (1 + df[name])) + 1 for name in tokenizer.names()]
    assert np.allclose(tokenizer.idf[1:], expected[1:])
    lengths = np.sqrt(rows.to_csr().power(2).sum(axis=1)).A1
    assert np.allclose(lengths, np.diff(rows.offsets) > 0, atol=1e-5)
    assert len(set(tokenizer.names())) == tokenizer.n_tokens
    if settings.ngrams == 2:
        assert all(" " not in name for row in token_names(tokenizer, rows.unigrams()) for name in row)


# --- all kinds

KINDS = [
    Words(),
    Words(ngrams=2, ngram_count=1, max_tokens=3),
    WordPiece(size=60),
    WordsAndPieces(pieces_size=60),
    WordsAndPieces(ngrams=2, ngram_count=1, pieces_size=60, max_tokens=3),
]


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_blocks_do_not_show(settings: TokenSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["red apple", "", "Crème brûlée!", "a long text of many words that fills some blocks", "red", "", ""] * 3
    whole = settings.fit(texts)
    rows = whole(texts)
    monkeypatch.setattr(module, "BLOCK_BYTES", 7)
    parts = settings.fit(texts)
    assert parts.state == whole.state
    assert same(parts(texts), rows)
    assert len(rows) == 21 and len(parts([])) == len(parts(["", ""])) - 2 == 0


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_texts_without_words_are_refused(settings: TokenSettings) -> None:
    for texts in ([], ["", " \n"]):
        with pytest.raises(DataError, match=f"None of the {len(texts)} texts holds a"):
            settings.fit(texts)
    with pytest.raises(DataError, match="wanted a list of texts"):
        settings.fit(["a b"])("a b")


@given(texts_of_pieces, texts_of_pieces, st.sampled_from(KINDS))
def test_a_saved_tokenizer_gives_the_same_tokens(tmp_path_factory: Any, texts: list[str], others: list[str], settings: Any) -> None:
    path = tmp_path_factory.mktemp("saved") / "tokenizer.json"
    tokenizer = settings.fit([*texts, "red"])
    tokenizer.save(path)
    again = load_tokenizer(path)
    assert again.settings == settings and again.names() == tokenizer.names()
    assert again.idf.dtype == np.float32 and np.array_equal(again.idf, tokenizer.idf)
    assert same(again([*texts, *others]), tokenizer([*texts, *others]))
    assert [entry.name for entry in path.parent.iterdir()] == ["tokenizer.json"]


def damaged(**changes: Any) -> str:
    state = json.loads(Words(ngrams=2).fit(["red apple", "red apple"]).state)
    return json.dumps({**state, **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "not a tokenizer"),
        ("{}", "'kind'"),
        (damaged(kind="wrds"), "called 'wrds'. Did you mean 'words'"),
        (damaged(kind=["words"]), "not a tokenizer"),
        (damaged(settings={"min_cont": 1}), "min_cont"),
        (damaged(settings={"min_count": 0}), "min_count came as 0"),
        (damaged(settings=None), "not a tokenizer"),
        (damaged(names=["red", "apple", "red apple", "x"]), "do not begin with"),
        (damaged(names=["[PAD]", "red", "red", "x"]), "twice"),
        (damaged(names=["[PAD]", "Red", "apple", "x"]), "lower case"),
        (damaged(names=["[PAD]", "red", "red apple", "apple"]), "all words first"),
        (damaged(names=["[PAD]", "red", "apple", "red pear"]), "pear"),
        (damaged(names=["[PAD]", "red", 7, "x"]), "do not begin with"),
        (damaged(idf=[0, 1, 1]), "idf"),
        (damaged(idf=[0, 1, 1, float("nan")]), "idf"),
        (damaged(idf=[0, 1, 1, -1]), "idf"),
        (damaged(kind="wordpiece", settings={}), r"no \[UNK\] behind"),
        (damaged(kind="words+pieces", settings={}, names=["[PAD]", "red", "~red", "apple"]), "all words first, then all pieces"),
        (damaged(kind="words+pieces", settings={}, names=["[PAD]", "red", "~red", "~red"]), "piece twice"),
        (damaged(kind="words+pieces", settings={"piece_min_count": 0}), "piece_min_count came as 0"),
    ],
)
def test_a_damaged_file_is_spoken_of(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(path)


def test_a_missing_file_is_spoken_of(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Words(min_count=0),
        lambda: Words(ngrams=3),
        lambda: Words(ngram_count=0),
        lambda: Words(size=1),
        lambda: Words(max_tokens=0),
        lambda: WordPiece(size=9),
        lambda: WordPiece(min_count=0),
        lambda: WordPiece(max_tokens=0),
        lambda: WordsAndPieces(min_count=0),
        lambda: WordsAndPieces(ngrams=3),
        lambda: WordsAndPieces(ngram_count=0),
        lambda: WordsAndPieces(pieces_size=9),
        lambda: WordsAndPieces(piece_min_count=0),
        lambda: WordsAndPieces(piece_min_count=2.5),
        lambda: WordsAndPieces(max_tokens=0),
    ],
)
def test_settings_are_checked(make: Any) -> None:
    with pytest.raises(SettingError, match="wanted"):
        make()


def test_kinds_of_bytes() -> None:
    """One entry a byte: 0 blank, 1 letter, 2 mark; judged by the cuts that they stand for."""
    bert = wordpiece._library(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    parts = {0: 2, 1: 1, 2: 3}  # into so many the text is cut that has the character between two letters
    for byte in range(128):
        assert len(WORD.findall(f"a{chr(byte)}a")) == parts[int(WORD_KINDS[byte])]
        n_words = len(bert.pre_tokenizer.pre_tokenize_str(bert.normalizer.normalize_str(f"a{chr(byte)}a")))
        assert n_words == parts[int(PIECE_KINDS[byte])]
    assert (WORD_KINDS[128:] == 1).all() and (PIECE_KINDS[128:] == 1).all()


# --- rows

row_lists = st.lists(st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0.25, 0.5, 1.0])), max_size=5), max_size=6)


def rows_of(lists: list[list[tuple[int, float]]]) -> TokenRows:
    ids = np.array([token for row in lists for token, _ in row], np.int32)
    weights = np.array([weight for row in lists for _, weight in row], np.float32)
    return TokenRows.from_arrays(ids, weights, np.cumsum([0, *map(len, lists)]), 7)


def lists_of(rows: TokenRows) -> list[list[tuple[int, float]]]:
    both = list(zip(rows.ids.tolist(), rows.weights.tolist(), strict=True))
    return [both[start:stop] for start, stop in zip(rows.offsets, rows.offsets[1:], strict=False)]


@given(row_lists, st.data())
def test_rows_can_be_taken_and_joined(lists: list[list[tuple[int, float]]], data: st.DataObject) -> None:
    rows = rows_of(lists)
    assert len(rows) == len(lists)
    places = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8)) if lists else []
    taken = rows.take(torch.tensor(places, dtype=torch.int64))
    assert lists_of(taken) == [lists[place] for place in places]
    assert lists_of(TokenRows.join([rows, taken, rows])) == lists + [lists[place] for place in places] + lists


@given(row_lists)
def test_rows_to_csr_and_back(lists: list[list[tuple[int, float]]]) -> None:
    rows = rows_of(lists)
    before = rows.ids.tolist()
    matrix = rows.to_csr()
    expected = np.zeros((len(lists), 7))
    for place, row in enumerate(lists):
        for token, weight in row:
            expected[place, token] += weight
    assert matrix.has_canonical_format and np.array_equal(matrix.toarray(), expected)
    assert rows.ids.tolist() == before  # reading order stays
    back = TokenRows.from_csr(matrix)
    assert back.n_tokens == 7 and np.array_equal(back.to_csr().toarray(), expected)


def test_features_as_rows() -> None:
    features = csr_matrix(np.array([[0.6, 0, 0.8], [0, 1, 0]], np.float32))
    with pytest.raises(DataError, match="first_id=1"):
        TokenRows.from_csr(features)
    assert lists_of(TokenRows.from_csr(features, first_id=1)) == [[(1, pytest.approx(0.6)), (3, pytest.approx(0.8))], [(2, 1.0)]]


def test_rows_of_two_vocabularies_do_not_join() -> None:
    for parts in ([], [rows_of([]), TokenRows.from_csr(csr_matrix((0, 4)))]):
        with pytest.raises(DataError, match="one tokenizer"):
            TokenRows.join(parts)


# --- kept on disk


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Words(ngrams=2).fit(["red apple", "red apple", "pear"])


def is_mapped(rows: TokenRows) -> bool:
    """Whether ids lie in a file that the system maps into memory."""
    place = rows.ids.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, stop = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= place < stop:
            return line.endswith("ids.npy")
    return False


def test_rows_are_kept_and_mapped(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts.of(["red apple", "", "pear"])
    made = cached_rows(tokenizer, texts, tmp_path / "kept")
    assert same(made, tokenizer(texts)) and same(cached_rows(tokenizer, texts, None), made)
    other = cached_rows(Words().fit(["red apple", "red apple", "pear"]), texts, tmp_path / "kept")
    assert other.ids.tolist() == [1, 2, 3] and made.ids.tolist() == [1, 2, 4, 3]
    assert len(cached_rows(tokenizer, ["pear"], tmp_path / "kept")) == 1
    # the same bytes, cut elsewhere, are other texts
    assert len(cached_rows(tokenizer, ["red apple", "pear", ""], tmp_path / "kept").take(torch.tensor([1])).ids) == 1
    assert len(list((tmp_path / "kept").iterdir())) == 4
    monkeypatch.setattr(Tokenizer, "__call__", lambda *_: pytest.fail("cut again"))
    mapped = cached_rows(tokenizer, texts, tmp_path / "kept")
    assert same(mapped, made) and is_mapped(mapped)
    mapped.weights[0] = 9  # a copy of the page, not the file
    assert same(cached_rows(tokenizer, texts, tmp_path / "kept"), made)


def test_rows_of_words_and_pieces_are_kept(tmp_path: Path) -> None:
    texts = ["tea pot teas", "", "teapot"]
    made = cached_rows(tea(), texts, tmp_path)
    mapped = cached_rows(tea(), texts, tmp_path)
    assert is_mapped(mapped) and same(mapped, made) and same(made, tea()(texts))
    assert not same(cached_rows(tea(max_tokens=1), texts, tmp_path), made)  # the same vocabulary, cut otherwise


def test_rows_without_tokens_are_kept(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for texts in (["", "kiwi"], []):
        assert len(cached_rows(tokenizer, texts, tmp_path)) == len(texts)
    monkeypatch.setattr(Tokenizer, "__call__", lambda *_: pytest.fail("cut again"))
    assert cached_rows(tokenizer, ["", "kiwi"], tmp_path).offsets.tolist() == [0, 0, 0]


def changed(name: str, array: NDArray[Any]) -> Any:
    return lambda folder: np.save(folder / f"{name}.npy", array)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "ids.npy").unlink(),
        lambda folder: (folder / "ids.npy").write_bytes(b"not numpy"),
        lambda folder: (folder / "weights.npy").write_bytes((folder / "weights.npy").read_bytes()[:-3]),
        lambda folder: (folder / "offsets.npy").write_bytes(b""),
        changed("ids", np.array([1, 2, 4, 0], np.int32)),
        changed("ids", np.array([1, 2, 4, 5], np.int32)),
        changed("ids", np.array([1, 2, 4, 3], np.int64)),
        changed("ids", np.array([1, 2, 4], np.int32)),
        changed("weights", np.ones((4, 1), np.float32)),
        changed("offsets", np.array([0, 3, 4])),
        changed("offsets", np.array([0, 3, 2, 4])),
        changed("offsets", np.array([1, 3, 3, 4])),
        changed("offsets", np.array([None] * 4)),
    ],
)
def test_a_damaged_cache_is_made_again(tokenizer: Tokenizer, tmp_path: Path, damage: Any) -> None:
    texts = ["red apple", "", "pear"]
    made = cached_rows(tokenizer, texts, tmp_path)
    (folder,) = tmp_path.iterdir()
    damage(folder)
    assert same(cached_rows(tokenizer, texts, tmp_path), made)
    assert is_mapped(cached_rows(tokenizer, texts, tmp_path))  # repaired


def test_a_foreign_file_in_the_cache(tokenizer: Tokenizer, tmp_path: Path) -> None:
    made = cached_rows(tokenizer, ["pear"], tmp_path / "kept")
    (folder,) = (tmp_path / "kept").iterdir()
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("mine")
    assert same(cached_rows(tokenizer, ["pear"], tmp_path / "kept"), made) and folder.is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="is a file; wanted a folder"):
        cached_rows(tokenizer, ["pear"], tmp_path / "file")


def test_another_process_may_keep_the_same_first(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = cached_rows(tokenizer, ["pear"], tmp_path / "ready")
    (kept,) = (tmp_path / "ready").iterdir()
    call = Tokenizer.__call__

    def overtaken(self: Tokenizer, texts: Texts) -> TokenRows:
        (tmp_path / "kept").mkdir()
        kept.rename(tmp_path / "kept" / kept.name)
        return call(self, texts)

    monkeypatch.setattr(Tokenizer, "__call__", overtaken)
    monkeypatch.setattr("longtail.tokens.cache.shutil.rmtree", lambda *_, **__: None)
    assert same(cached_rows(tokenizer, ["pear"], tmp_path / "kept"), ready)


# --- vectors of others


def test_vectors_from_a_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\nred 1 2\napple 3 5\n[PAD] 7 7\n")
    vectors, found = pretrained_vectors(tokenizer, str(path))
    assert tokenizer.names() == ["[PAD]", "red", "apple", "pear", "red apple"]
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0, 0], [1, 2], [3, 5], [0, 0], [2, 3.5]]
    assert found.tolist() == [False, True, True, False, True]
    path.write_text("tea 1 2\n~ 3 5\n##s 4 4\npot 6 6\n~tea 9 9\n")
    vectors, found = pretrained_vectors(tea(), path)  # of its ten names only the piece ##pot is not there
    assert vectors.tolist() == [[0, 0], [1, 2], [6, 6], [3, 5], [1, 2], [6, 6], [0, 0], [4, 4], [3, 5], [3.5, 4]]
    assert np.flatnonzero(~found).tolist() == [0, 6]
    with pytest.raises(DataError, match="no file. Wanted a text file of word vectors, or 'wordllama'"):
        pretrained_vectors(tokenizer, "wordlama")


def test_vectors_from_wordllama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name whose pieces are `_red`, `_a`, `p`, a blank and a byte; row i of its table is (i, 1)."""
    vocabulary = {"<unk>": 0, "<0x21>": 1, "\u2581": 2, "\u2581red": 3, "\u2581a": 4, "p": 5, "\u2581p": 6}

    class Pieces:
        def tokenize(self, text: str) -> list[SimpleNamespace]:
            found = []
            while text:
                fits = [piece for piece in vocabulary if text.startswith(piece)] or ["<unk>" if text[0] != "!" else "<0x21>"]
                piece = max(fits, key=len)
                found.append(SimpleNamespace(id=vocabulary[piece], value=piece))
                text = text[len(piece) if text.startswith(piece) else 1 :]
            return found

    def load(cache_dir: Path, disable_download: bool) -> SimpleNamespace:
        assert cache_dir == tmp_path and disable_download
        table = np.array([[number, 1] for number in range(7)], np.float32)
        return SimpleNamespace(embedding=table, tokenizer=SimpleNamespace(model=Pieces()))

    package = SimpleNamespace(__file__=str(tmp_path / "__init__.py"), WordLlama=SimpleNamespace(load=load))
    monkeypatch.setitem(sys.modules, "wordllama", package)  # type: ignore[arg-type]
    words = Words(ngrams=2, ngram_count=1).fit(["red app !"])
    vectors, found = pretrained_vectors(words, "wordllama")
    assert words.names() == ["[PAD]", "red", "app", "!", "red app", "app !"]
    # red: (3); app: (4 + 5 + 5) / 3; "!" is a blank and a byte: nothing; red app: (3 + 4 + 5 + 5) / 4
    assert np.allclose(vectors[:, 0], [0, 3, 14 / 3, 0, 17 / 4, 14 / 3])
    assert vectors[:, 1].tolist() == pytest.approx([0, 1, 1, 0, 1, 1])
    assert found.tolist() == [False, True, True, False, True, True]
    inside = WordPiece(size=20).fit(["pp", "p p"])
    vectors, found = pretrained_vectors(inside, "wordllama")
    named = dict(zip(inside.names(), vectors[:, 0].tolist(), strict=True))
    assert named["##p"] == 5 and named["p"] == 6 and named["[PAD]"] == named["[UNK]"] == 0
    assert not found[:2].any()
    both = WordsAndPieces(pieces_size=20).fit(["pp", "p p"])
    vectors, _ = pretrained_vectors(both, "wordllama")
    named = dict(zip(both.names(), vectors[:, 0].tolist(), strict=True))
    assert named["p"] == named["~p"] == 6 and named["~##p"] == 5


def test_wordllama_is_asked_for(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="pip install wordllama"):
        pretrained_vectors(tokenizer, "wordllama")
