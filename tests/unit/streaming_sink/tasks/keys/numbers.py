"""Sequences as the whole numbers that they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.keys.sequences import LONG, WIDE, sequence_values

TYPES = {LONG: pa.int64(), WIDE: pa.decimal128(38, 0)}


def sequences_of(numbers: Iterable[int | None], kind: np.dtype = LONG) -> np.ndarray:
    values = [None if it is None else it if kind == LONG else Decimal(it) for it in numbers]
    return sequence_values(pa.array(values, TYPES[kind]))


def numbers_of(sequences: np.ndarray) -> list[int]:
    if sequences.dtype == LONG:
        return [int(each) for each in sequences]
    return [int.from_bytes(each.ljust(16, b"\0"), "big") - (1 << 127) for each in sequences.tolist()]
