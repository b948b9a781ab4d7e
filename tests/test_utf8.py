"""UTF-8 validation against Python's own decoder."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail.core.kernels.utf8 import first_invalid


def naive(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


# bytes around every edge of the table, so that chance meets them often
edges = st.sampled_from(bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff"))


@settings(max_examples=600)
@given(st.one_of(st.lists(edges, max_size=12).map(bytes), st.binary(max_size=12), st.text(max_size=6).map(lambda text: text.encode())))
@example(b"\xf0\x9f\x8d\x90")
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
def test_equals_pythons_decoder(data: bytes) -> None:
    assert first_invalid(np.frombuffer(data, np.uint8)) == naive(data)
