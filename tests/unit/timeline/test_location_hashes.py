"""Hashes of locations: on disk, so they stay as they are."""

from __future__ import annotations

from timeline.location_hashes import HASH_BYTES, hash_locations


def test_the_hashes_stay_as_they_are() -> None:
    assert hash_locations(["s3://t/a"]).hex() == "073f14d1bd399f604971828fbf0cc525"


def test_each_location_has_its_own_behind_the_one_before() -> None:
    locations = ["", "a", "ab", "\udc80", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    found = hash_locations(locations)
    each = [found[at : at + HASH_BYTES] for at in range(0, len(found), HASH_BYTES)]
    assert each == [hash_locations([it]) for it in locations]
    assert len(set(each)) == len(locations)
