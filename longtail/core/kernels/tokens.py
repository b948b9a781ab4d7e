"""Words of texts to numbers, and numbers to weighted rows, without a Python object for each word."""

from __future__ import annotations

import string

import numpy as np
from numba import njit

from longtail.core.kernels.splitmix import mix

UNKNOWN = -1
EMPTY = -1  # a slot of a hash table that holds nothing

_SPACE, _LETTER = 0, 1
_SINGLE = 2  # a token by itself: punctuation, control characters
_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_STEP = np.uint64(0x100000001B3)


def _kinds(spaces, marks):
    """Kind of each byte; a byte of 128 or more counts as a letter."""
    kinds = np.full(256, _LETTER, np.uint8)
    kinds[[ord(space) for space in spaces]] = _SPACE
    kinds[[ord(mark) for mark in marks]] = _SINGLE
    return kinds


_ASCII = [chr(byte) for byte in range(128)]
# as `\\w+|[^\\w\\s]` cuts ASCII: control characters that are no blanks are marks
WORD_KINDS = _kinds(filter(str.isspace, _ASCII), (c for c in _ASCII if not (c.isspace() or c.isalnum() or c == "_")))
# only where BERT surely cuts: it drops control characters and joins what stands around them
PIECE_KINDS = _kinds(" \t\n\r", string.punctuation)
_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8).copy()  # ASCII capitals to small letters, all else as it is


@njit(nogil=True, cache=True)
def _is_word(buffer, start, stop, letters, first, last):
    if stop - start != last - first:
        return False
    for place in range(stop - start):
        if _LOWER[buffer[start + place]] != letters[first + place]:
            return False
    return True


@njit(nogil=True, cache=True)
def number_words(buffer, starts, stops, kinds, grow, n_words, slots, hashes, ends, letters):
    """The number of each word of each text, in reading order: (n,) int32, with (n_texts + 1,) offsets and the words now known.

    Text i is buffer[starts[i]:stops[i]]. Capitals of ASCII count as small letters; a byte of 128 or more is part of a word.

    Args:
        kinds: (256,) WORD_KINDS or PIECE_KINDS: where words end.
        grow: number new words; else they are UNKNOWN and nothing is written.
        n_words: words known so far.
        slots: hash table of word numbers, a power of two long; EMPTY where there is none. More than the words that may come.
        hashes, ends, letters: of each word its hash and its bytes letters[ends[word]:ends[word + 1]]; with room for what may come.
    """
    longest = np.int64(0)
    for text in range(len(starts)):
        longest += stops[text] - starts[text]
    numbers = np.empty(longest, np.int32)
    offsets = np.zeros(len(starts) + 1, np.int64)
    mask = np.uint64(len(slots) - 1)
    at = 0
    for text in range(len(starts)):
        place, stop = starts[text], stops[text]
        while place < stop:
            kind = kinds[buffer[place]]
            if kind == _SPACE:
                place += 1
                continue
            start = place
            state = _FNV_START
            while place < stop:
                state = (state ^ np.uint64(_LOWER[buffer[place]])) * _FNV_STEP
                place += 1
                if kind == _SINGLE or (place < stop and kinds[buffer[place]] != _LETTER):
                    break
            state = mix(state)
            slot = state & mask
            word = slots[slot]
            while word != EMPTY and not (hashes[word] == state and _is_word(buffer, start, place, letters, ends[word], ends[word + 1])):
                slot = (slot + np.uint64(1)) & mask
                word = slots[slot]
            if word == EMPTY:
                if grow:
                    word = n_words
                    slots[slot] = word
                    hashes[word] = state
                    first = ends[word]
                    for letter in range(place - start):
                        letters[first + letter] = _LOWER[buffer[start + letter]]
                    ends[word + 1] = first + place - start
                    n_words += 1
                else:
                    word = UNKNOWN
            numbers[at] = word
            at += 1
        offsets[text + 1] = at
    return numbers[:at].copy(), offsets, n_words


@njit(nogil=True, cache=True)
def fill_slots(hashes, slots):
    """Put 0, 1, ... with these hashes into an empty table."""
    mask = np.uint64(len(slots) - 1)
    for number in range(len(hashes)):
        slot = hashes[number] & mask
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number


@njit(nogil=True, cache=True)
def key_hashes(keys):
    hashes = np.empty(len(keys), np.uint64)
    for place in range(len(keys)):
        hashes[place] = mix(np.uint64(keys[place]))
    return hashes


@njit(nogil=True, cache=True)
def _find_key(key, keys, slots):
    mask = np.uint64(len(slots) - 1)
    slot = mix(np.uint64(key)) & mask
    while slots[slot] != EMPTY:
        if keys[slots[slot]] == key:
            return slots[slot]
        slot = (slot + np.uint64(1)) & mask
    return UNKNOWN


@njit(nogil=True, cache=True)
def pair_keys(numbers, offsets, n_words):
    """left * n_words + right of all words that follow each other, where both are known: (n,) int64."""
    keys = np.empty(len(numbers), np.int64)
    at = 0
    for text in range(len(offsets) - 1):
        for place in range(offsets[text] + 1, offsets[text + 1]):
            left, right = np.int64(numbers[place - 1]), np.int64(numbers[place])
            if left != UNKNOWN and right != UNKNOWN:
                keys[at] = left * n_words + right
                at += 1
    return keys[:at].copy()


@njit(nogil=True, cache=True)
def token_rows(numbers, offsets, max_tokens, n_words, pairs, slots):
    """Ids of each text: number + 1 of its first `max_tokens` known words, then the pairs among those, all in reading order.

    Args:
        pairs: keys as `pair_keys` makes them; may be empty. The ids of the pairs follow those of the words.
        slots: hash table of the pairs, as `fill_slots` fills it.
    """
    ids = np.empty(len(numbers) * (2 if len(pairs) else 1), np.int32)
    ends = np.zeros(len(offsets), np.int64)
    at = 0
    for text in range(len(offsets) - 1):
        start, stop = offsets[text], offsets[text + 1]
        kept = 0
        place = start
        while place < stop and kept < max_tokens:
            if numbers[place] != UNKNOWN:
                ids[at] = numbers[place] + 1
                at += 1
                kept += 1
            place += 1
        if len(pairs):
            for right in range(start + 1, place):
                if numbers[right - 1] == UNKNOWN or numbers[right] == UNKNOWN:
                    continue
                key = np.int64(numbers[right - 1]) * n_words + numbers[right]
                pair = _find_key(key, pairs, slots)
                if pair != UNKNOWN:
                    ids[at] = 1 + n_words + pair
                    at += 1
        ends[text + 1] = at
    return ids[:at].copy(), ends


@njit(nogil=True, cache=True)
def unit_weights(ids, offsets, idf):
    """idf of each token, scaled so that a row in which equal tokens are added up has length 1."""
    weights = np.empty(len(ids), np.float32)
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        ordered = np.sort(ids[start:stop])
        square = 0.0
        place = 0
        while place < len(ordered):
            first = place
            while place < len(ordered) and ordered[place] == ordered[first]:
                place += 1
            value = (place - first) * np.float64(idf[ordered[first]])
            square += value * value
        for place in range(start, stop):
            weights[place] = idf[ids[place]] / np.sqrt(square)
    return weights


@njit(nogil=True, cache=True)
def count_texts(ids, offsets, first_text, last_seen, counts):
    """Add to `counts` in how many texts each id stands. `last_seen` holds the last text of each id, -1 before the first."""
    for text in range(len(offsets) - 1):
        for place in range(offsets[text], offsets[text + 1]):
            token = ids[place]
            if last_seen[token] != first_text + text:
                last_seen[token] = first_text + text
                counts[token] += 1
