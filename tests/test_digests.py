"""The one digest: equal for equal parts alone."""

from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np

from redistrib.digests import digest_of_parts


def test_of_one_text_it_is_sha_256() -> None:
    assert digest_of_parts(["[8{x}16]"], 64) == hashlib.sha256(b"[8{x}16]").hexdigest()
    assert digest_of_parts(["[8{x}16]"]) == digest_of_parts(["[8{x}16]"], 64)[:16]


def test_parts_that_differ_have_other_digests() -> None:
    table = np.arange(6)
    calls = [
        [], ["ab", "c"], ["a", "bc"], ["abc"], [b"abc", ""], [table], [table[::-1]], [table.astype(np.int32)],
        [np.array(1.5, np.float32)], [np.array(1.5, ml_dtypes.bfloat16)], [table, table], [1, None, (2, "x")],
    ]  # fmt: skip
    assert len({digest_of_parts(parts) for parts in calls}) == len(calls)


def test_elements_count_and_no_strides() -> None:
    table = np.arange(12).reshape(3, 4)
    assert digest_of_parts([table.T]) == digest_of_parts([np.ascontiguousarray(table.T)]) != digest_of_parts([table])
    assert digest_of_parts([b"abc"]) == digest_of_parts(["abc"])
