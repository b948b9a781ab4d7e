"""Words to the pieces of a vocabulary, and rows of words and of pieces to rows of both."""

from __future__ import annotations

import numpy as np
from numba import njit

from longtail.core.kernels.splitmix import mix
from longtail.core.kernels.tokens import EMPTY, UNKNOWN

LONGEST_WORD = 100  # bytes; the library does not spell longer ones
_INSIDE = np.frombuffer(b"##", np.uint8).copy()
_SPACE, _MARK, _LETTER, _OTHER = 0, 1, 2, 3
_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_STEP = np.uint64(0x100000001B3)


def _kinds():
    """Kind of each byte: those of ASCII as BERT cuts it. Texts with others, and with control characters, are left to the library."""
    kinds = np.full(256, _OTHER, np.uint8)
    kinds[33:127] = _MARK
    kinds[list(b" \t\n\r")] = _SPACE
    kinds[[byte for byte in range(128) if chr(byte).isalnum()]] = _LETTER
    return kinds


_KINDS = _kinds()
_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8).copy()


@njit(nogil=True, cache=True)
def _hash(letters, state):
    for place in range(len(letters)):
        state = (state ^ np.uint64(letters[place])) * _FNV_STEP
    return state


@njit(nogil=True, cache=True)
def piece_hashes(letters, ends):
    """Hashes of the names letters[ends[i]:ends[i + 1]], for `fill_slots`."""
    hashes = np.empty(len(ends) - 1, np.uint64)
    for piece in range(len(hashes)):
        hashes[piece] = mix(_hash(letters[ends[piece] : ends[piece + 1]], _FNV_START))
    return hashes


@njit(nogil=True, cache=True)
def _longest(word, before, letters, ends, hashes, slots):
    """The piece that is the longest start of the word, behind the bytes `before` that its name has first, and its length."""
    mask = np.uint64(len(slots) - 1)
    state = _hash(before, _FNV_START)
    found, length = UNKNOWN, 0
    for size in range(1, len(word) + 1):
        state = (state ^ np.uint64(word[size - 1])) * _FNV_STEP
        mixed = mix(state)
        slot = mixed & mask
        while slots[slot] != EMPTY:
            piece = slots[slot]
            if hashes[piece] == mixed and ends[piece + 1] - ends[piece] == len(before) + size:
                name = letters[ends[piece] : ends[piece + 1]]
                if np.all(name[len(before) :] == word[:size]) and np.all(name[: len(before)] == before):
                    found, length = piece, size
                    break
            slot = (slot + np.uint64(1)) & mask
    return found, length


@njit(nogil=True, cache=True)
def spell(buffer, offsets, letters, ends, hashes, slots):
    """Numbers of the pieces of each text, (n,) int32, with (n_texts + 1,) offsets; and which texts are not spelt but left empty.

    As BERT does it: a word is the longest piece that it begins with, then the longest that goes on from there, and so on; UNKNOWN where
    nothing fits.

    Args:
        letters, ends, hashes, slots: names of the pieces and a hash table of them; those inside words begin with `##`.
    """
    numbers, starts = np.empty(offsets[-1] - offsets[0], np.int32), np.zeros(len(offsets), np.int64)
    left = np.zeros(len(offsets) - 1, np.bool_)
    word = np.empty(LONGEST_WORD, np.uint8)
    at = 0
    for text in range(len(offsets) - 1):
        place, stop = offsets[text], offsets[text + 1]
        for byte in buffer[place:stop]:
            left[text] |= _KINDS[byte] == _OTHER
        while place < stop and not left[text]:
            kind = _KINDS[buffer[place]]
            if kind == _SPACE:
                place += 1
                continue
            size = 0
            while place < stop and _KINDS[buffer[place]] == kind and not (kind == _MARK and size == 1):
                if size < LONGEST_WORD:
                    word[size] = _LOWER[buffer[place]]
                size += 1
                place += 1
            first, spelt = at, 0
            while spelt < size:
                if size > LONGEST_WORD:
                    piece = UNKNOWN
                else:
                    piece, length = _longest(word[spelt:size], _INSIDE[: 2 if spelt else 0], letters, ends, hashes, slots)
                if piece == UNKNOWN:
                    at = first  # of such a word no piece is known
                    numbers[at] = UNKNOWN
                    at += 1
                    break
                numbers[at] = piece
                at += 1
                spelt += length
        starts[text + 1] = at
    return numbers[:at].copy(), starts, left


@njit(nogil=True, cache=True)
def words_and_pieces(words, word_ends, pieces, piece_ends, same_word, is_inside, n_words, n_pieces, max_pieces):
    """Rows of word ids and rows of piece ids to rows of both: words, bigrams, then pieces, with ids in the order words, pieces, bigrams.

    A piece is left out that is a whole word of its text, for each time that the word stands there once; and all behind the first
    `max_pieces`.

    Args:
        words, word_ends: ids from 1; bigrams behind n_words.
        pieces, piece_ends: all pieces; ids from 2.
        same_word: (n_pieces + 2,) the word that a piece is, 0 where there is none.
        is_inside: (n_pieces + 2,) whether a piece goes on a word.
    """
    ids, ends = np.empty(len(words) + len(pieces), np.int32), np.zeros(len(word_ends), np.int64)
    at = 0
    for row in range(len(word_ends) - 1):
        own = words[word_ends[row] : word_ends[row + 1]]
        ordered = np.sort(own)
        used = np.zeros(len(own), np.int64)  # of a run of equal words, at its first
        for word in own:
            ids[at] = word + n_pieces if word > n_words else word
            at += 1
        stop, kept = piece_ends[row + 1], 0
        for place in range(piece_ends[row], stop):
            piece = pieces[place]
            word = same_word[piece]
            if word and not (place + 1 < stop and is_inside[pieces[place + 1]]):
                first = np.searchsorted(ordered, word)
                again = first + used[first] if first < len(ordered) else first
                if again < len(ordered) and ordered[again] == word:
                    used[first] += 1
                    continue
            if kept < max_pieces:
                ids[at] = piece - 1 + n_words
                at += 1
                kept += 1
        ends[row + 1] = at
    return ids[:at].copy(), ends
