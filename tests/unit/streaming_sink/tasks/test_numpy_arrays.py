from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from streaming_sink.tasks.numpy_arrays import numbers_array, plain_numbers, true_flags


@pytest.mark.parametrize("kind", ["int8", "int32", "uint32", "int64", "uint64", "float64"])
def test_numbers_are_the_same_in_both(kind: str) -> None:
    numbers = np.array([0, 1, 7, 127], kind)
    array = numbers_array(numbers)
    assert array.equals(pa.array(numbers))
    assert plain_numbers(array.slice(1)).tolist() == [1, 7, 127]
    assert plain_numbers(array.slice(1)).dtype == numbers.dtype
    assert plain_numbers(pa.chunked_array([array, array[:0], array[2:]])).tolist() == [0, 1, 7, 127, 7, 127]
    assert len(plain_numbers(array[:0])) == 0


def test_flags_are_true_where_a_boolean_is_neither_false_nor_null() -> None:
    values = pa.array([True, False, None] * 5)
    for given in (values, values[1:], pa.chunked_array([values[:2], values[2:]])):
        expected = [value is True for value in given.to_pylist()]
        assert true_flags(given).tolist() == expected
        assert plain_numbers(given.is_null()).tolist() == [value is None for value in given.to_pylist()]


WITHOUT_PANDAS = """
import sys
import numpy as np, pyarrow as pa
from streaming_sink.tasks.numpy_arrays import numbers_array, plain_numbers, true_flags
array = numbers_array(np.arange(9))
plain_numbers(pa.chunked_array([array])), true_flags(array.is_valid())
assert "pandas" not in sys.modules
array.to_numpy()
assert "pandas" in sys.modules  # or this module is not needed any more
"""


def test_arrow_imports_pandas_for_what_it_has_itself() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], check=True)
