"""Spark's settings around a block, also where blocks of several threads overlap in one session."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streaming_sink.spark.settings import safe_shuffle

ADAPTIVE = "spark.sql.adaptive.enabled"
CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum.enabled"


class _Conf:
    def __init__(self, **known):
        self.known = known

    def get(self, key, default):
        return self.known.get(key, default)

    def set(self, key, value):
        if "refuse" in self.known and key == CHECKSUM:
            raise ConnectionError("the server has gone")
        self.known[key] = value

    def unset(self, key):
        del self.known[key]


class _Session:
    """Python's object for a session of Spark; there may be several of one."""

    def __init__(self, of=None, **known):
        self.conf = _Conf(**known) if of is None else of.conf
        self._jsparkSession = SimpleNamespace(sessionUUID=lambda: id(self.conf))


def test_a_block_has_the_settings_and_what_was_there_comes_back_also_on_failure():
    session, seen = _Session(**{ADAPTIVE: "true"}), {}

    def fails():
        with safe_shuffle(session):
            seen.update(session.conf.known)
            raise RuntimeError("of the block")

    with pytest.raises(RuntimeError, match="of the block"):
        fails()
    assert (seen[ADAPTIVE], seen[CHECKSUM]) == ("false", "true")
    assert session.conf.known == {ADAPTIVE: "true"}


def test_blocks_that_overlap_keep_the_settings_until_the_last_one_ends():
    """Else one thread's write would shuffle without checksums, or leave the other's settings for good."""
    session = _Session(**{ADAPTIVE: "true"})
    first, second, third = (safe_shuffle(each) for each in (session, _Session(of=session), session))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (session.conf.known[ADAPTIVE], session.conf.known[CHECKSUM]) == ("false", "true")
    with third:
        second.__exit__(None, None, None)
        assert (session.conf.known[ADAPTIVE], session.conf.known[CHECKSUM]) == ("false", "true")
    assert session.conf.known == {ADAPTIVE: "true"}


def test_sessions_have_settings_of_their_own():
    one, other = _Session(), _Session(**{ADAPTIVE: "false"})
    with safe_shuffle(one):
        assert other.conf.known == {ADAPTIVE: "false"}
        with safe_shuffle(other):
            assert one.conf.known == other.conf.known
    assert (one.conf.known, other.conf.known) == ({}, {ADAPTIVE: "false"})


def test_a_setting_that_is_refused_leaves_none_behind():
    session = _Session(**{ADAPTIVE: "true", "refuse": "yes"})
    with pytest.raises(ConnectionError), safe_shuffle(session):
        pass
    assert session.conf.known[ADAPTIVE] == "true"
    assert CHECKSUM not in session.conf.known
