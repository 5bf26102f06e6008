"""How many manifests a table has, and how often an entry is rewritten: the policy, and real fills."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.timeline.world import Audit, Lake
from timeline.changes.changes import Append, Replace
from timeline.manifests.manifest_policy import (
    OPEN_ENTRIES,
    SEALED_ENTRIES,
    ManifestSize,
    manifests_to_merge,
    manifests_to_split,
    pack,
)

sizes = st.builds(
    lambda spec, live, opened: (spec, live, min(opened, live)),
    st.integers(0, 2),
    st.integers(0, 2 * SEALED_ENTRIES),
    st.integers(0, 2 * SEALED_ENTRIES),
)


@settings(deadline=None)
@given(st.binary(max_size=4 * OPEN_ENTRIES), st.integers(0, 256))
@example(bytes(range(256)) * 3, 128)
@example(bytes(range(256)) * 3, 256)
def test_packing_loses_nothing_and_keeps_its_bounds(files: bytes, sealed_from: int) -> None:
    entries = [(number, byte < sealed_from, byte % 6) for number, byte in enumerate(files)]
    packed = pack(entries, lambda e: e[1], lambda e: (e[2],))
    assert Counter(itertools.chain(*packed)) == Counter(entries)
    assert all(packed)
    if len(entries) <= OPEN_ENTRIES:
        assert len(packed) <= 1
        return
    for content in packed:
        assert len({opened for _, opened, _ in content}) == 1, "open and sealed files stay apart"
        assert len(content) <= (OPEN_ENTRIES if content[0][1] else SEALED_ENTRIES)
    for kind in (True, False):
        partitions = [partition for content in packed for _, opened, partition in content if opened is kind]
        assert partitions == sorted(partitions), "one partition's files are in as few manifests as can be"


@pytest.mark.parametrize(
    ("count", "lists"),
    [(SEALED_ENTRIES - 1, 1), (SEALED_ENTRIES, 1), (SEALED_ENTRIES + 1, 2), (3 * SEALED_ENTRIES, 3)],
)
def test_sealed_manifests_are_cut_at_their_bound(count: int, lists: int) -> None:
    packed = pack(list(range(count)), lambda e: False, lambda e: ())
    assert len(packed) == lists
    assert [e for content in packed for e in content] == list(range(count))


@settings(deadline=None)
@given(st.lists(sizes, max_size=120), st.integers(2, 40))
def test_a_merge_takes_crowded_classes_up_to_what_one_commit_may_merge(
    given_sizes: list[tuple[int, int, int]], min_count: int
) -> None:
    manifests = [
        ManifestSize(str(n), spec, live, opened) for n, (spec, live, opened) in enumerate(given_sizes)
    ]
    chosen = manifests_to_merge(manifests, min_count)
    merged = [m for m in manifests if m.path in chosen]
    assert len(chosen) == len(merged)
    for m in merged:
        assert 2 * m.live <= (OPEN_ENTRIES if 2 * m.open > m.live else SEALED_ENTRIES), (
            "full ones are left alone"
        )
    for kind in {(m.spec_id, 2 * m.open > m.live) for m in merged}:
        alike = [m for m in merged if (m.spec_id, 2 * m.open > m.live) == kind]
        assert len(alike) >= 2, "a merge of one manifest shrinks nothing"
    left = [m for m in manifests if m.path not in chosen]
    again = manifests_to_merge(left, min_count)
    # What crowds still is what would have gone beyond the bound.
    smallest = min((m.live for m in left if m.path in again), default=0)
    assert not again or sum(m.live for m in merged) + smallest > SEALED_ENTRIES


def test_one_commit_merges_no_more_entries_than_its_bound() -> None:
    crowd = [ManifestSize(f"{n:02}", 0, 1000, 0) for n in range(40)]
    chosen = manifests_to_merge(crowd, 32)
    assert chosen == {"00", "01", "02", "03"}, "as many as stay within the bound"


@settings(deadline=None)
@given(st.lists(sizes, max_size=40))
def test_a_split_takes_what_mixes_files_up_to_what_one_commit_may_merge(
    given_sizes: list[tuple[int, int, int]],
) -> None:
    manifests = [
        ManifestSize(str(n), spec, live, opened) for n, (spec, live, opened) in enumerate(given_sizes)
    ]
    chosen = manifests_to_split(manifests)
    mixed = [m for m in manifests if m.open and m.live > OPEN_ENTRIES]
    assert chosen <= {m.path for m in mixed}
    taken = sum(m.live for m in mixed if m.path in chosen)
    assert taken <= SEALED_ENTRIES
    left = min((m.live for m in mixed if m.path not in chosen), default=SEALED_ENTRIES + 1)
    assert taken + left > SEALED_ENTRIES, "as many as stay within the bound"


@pytest.mark.parametrize(
    ("live", "opened", "merged"),
    [
        (OPEN_ENTRIES // 2, OPEN_ENTRIES // 2, True),
        (OPEN_ENTRIES // 2 + 1, OPEN_ENTRIES // 2 + 1, False),
        (OPEN_ENTRIES // 2 + 1, 0, True),
        (SEALED_ENTRIES // 2, 0, True),
        (SEALED_ENTRIES // 2 + 1, 0, False),
        (0, 0, True),
    ],
)
def test_manifests_that_are_half_full_are_merged_no_more(live: int, opened: int, merged: bool) -> None:
    manifests = [ManifestSize(str(n), 0, live, opened) for n in range(8)]
    assert bool(manifests_to_merge(manifests, 8)) == merged
    assert manifests_to_merge(manifests[1:], 8) == frozenset()


@settings(deadline=None)
@given(st.lists(sizes, max_size=60), st.integers(2, 40))
def test_merging_what_was_merged_soon_ends(given_sizes: list[tuple[int, int, int]], min_count: int) -> None:
    held = [[True] * opened + [False] * (live - opened) for _, live, opened in given_sizes if live]
    total = sum(len(entries) for entries in held)
    for _ in range(10):
        chosen = manifests_to_merge(
            [ManifestSize(str(n), 0, len(e), sum(e)) for n, e in enumerate(held)], min_count
        )
        if not chosen:
            break
        merged = [entry for n, entries in enumerate(held) if str(n) in chosen for entry in entries]
        held = [entries for n, entries in enumerate(held) if str(n) not in chosen] + pack(
            merged, bool, lambda e: ()
        )
    assert not chosen
    assert sum(len(entries) for entries in held) == total


@settings(deadline=None)
@given(st.lists(sizes, max_size=60), st.integers(2, 40), st.randoms(use_true_random=False))
def test_the_order_of_manifests_does_not_matter(
    given_sizes: list[tuple[int, int, int]], min_count: int, random: object
) -> None:
    manifests = [
        ManifestSize(str(n), spec, live, opened) for n, (spec, live, opened) in enumerate(given_sizes)
    ]
    shuffled = list(manifests)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert manifests_to_merge(manifests, min_count) == manifests_to_merge(shuffled, min_count)


@dataclass
class Simulated:
    """A table's manifests under the policy: each a list of entries (number, open)."""

    min_count: int
    manifests: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    sizes: dict[str, ManifestSize] = field(default_factory=dict)
    rewritten: Counter[int] = field(default_factory=Counter)
    largest_merge: int = 0
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def append(self, entries: list[tuple[int, bool]]) -> None:
        self._add(entries)
        chosen = manifests_to_merge(self.sizes.values(), self.min_count)
        merged = [entry for path in chosen for entry in self.manifests.pop(path)]
        for path in chosen:
            del self.sizes[path]
        self.rewritten.update(number for number, _ in merged)
        self.largest_merge = max(self.largest_merge, len(merged))
        for content in pack(merged, lambda e: e[1], lambda e: ()):
            self._add(content)

    def _add(self, entries: list[tuple[int, bool]]) -> None:
        path = str(next(self._names))
        self.manifests[path] = entries
        self.sizes[path] = ManifestSize(path, 0, len(entries), sum(opened for _, opened in entries))


@pytest.mark.parametrize("min_count", [8, 32])
@pytest.mark.parametrize("opened", ["none", "all", "every third"])
@pytest.mark.parametrize("files", [1, 4])
def test_5000_appends_keep_few_manifests_and_rewrite_an_entry_about_log_of_files_times(
    min_count: int, opened: str, files: int
) -> None:
    table = Simulated(min_count)
    numbers = itertools.count()
    most = 0
    commits = 5000
    for _ in range(commits):
        entries = [
            (n, opened == "all" or (opened == "every third" and n % 3 == 0))
            for n in itertools.islice(numbers, files)
        ]
        table.append(entries)
        most = max(most, len(table.manifests))
    total = commits * files
    tiers = math.ceil(math.log(total, min_count))
    full = (
        2 * total / OPEN_ENTRIES
        if opened == "all"
        else 2 * total / SEALED_ENTRIES + total / 3 / OPEN_ENTRIES * 2
    )
    assert most <= min_count * (tiers + 1) + full
    assert sum(len(held) for held in table.manifests.values()) == total
    # An open entry is merged until its manifest is half full; a sealed one once a tier.
    bound = tiers + 1 + OPEN_ENTRIES // 2 // (min_count * files) + 1
    assert sum(table.rewritten.values()) / total <= bound


# real fills ---------------------------------------------------------------------------------------

OPEN_BELOW = 5000


def manifest_bytes_of_fills(files: int, fills: int) -> list[int]:
    """Bytes of manifests that each of many fills writes, on a table that has so many big files already."""
    lake = Lake()
    batch = max(files // 4, 1)
    for _ in range(0, files, batch):
        lake.table.commit(
            [Append(tuple(lake.file(1, p=n % 8, size=9000) for n in range(batch)))],
            open_below_bytes=OPEN_BELOW,
        )
    small = [lake.file(1, p=p) for p in range(8)]
    lake.table.commit([Append(tuple(small))], open_below_bytes=OPEN_BELOW)
    written: list[int] = []

    def measure(verb: str, path: str) -> None:
        if verb == "create" and path.endswith("-manifest.avro"):
            written[-1] += len(lake.store._get(path)[0])

    lake.store.after = measure
    for step in range(fills):
        old, new = small[step % 8], lake.file(1, p=step % 8)
        sealed = step % 24 >= 16
        merged = lake.merged(old, new, size=9000 if sealed else 1000)
        written.append(0)
        replace = Replace(frozenset({old.file_path, new.file_path}), (merged,))
        lake.table.commit([Append((new,)), replace], open_below_bytes=OPEN_BELOW)
        small[step % 8] = merged
        if sealed:  # the next fill of this partition needs a small file
            small[step % 8] = lake.file(1, p=step % 8)
            lake.table.commit([Append((small[step % 8],))], open_below_bytes=OPEN_BELOW)
    Audit(lake.store).check_snapshots(lake.table.head.metadata)
    return written


def test_a_fill_rewrites_small_manifests_only_however_many_files_the_table_has() -> None:
    few, many = manifest_bytes_of_fills(40, 32), manifest_bytes_of_fills(10_000, 32)
    # A manifest of all files would be hundreds of KB.
    assert max(many) < 40_000
    assert max(many) < 2 * max(few)
    assert sum(many[16:]) < 2 * sum(many[:16]), "flat from fill to fill"
