"""Size-tiered merges, as the levels of an LSM tree: which of many runs or files become one.

Two schedules. *Tiers*: what is of one tier is merged once there is enough of it, so that a row is written
again once for each tier; for what is looked up in each run, whose number has to be bounded.
*Best repaid*: the smallest are merged up to the one whose rewriting the others repay best; for few, whose
number has a bound that is not to be met by rewriting the largest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction


def tier_of(size: int, fan_out: int, first: int) -> int:
    """Return the tier of a size: 0 below `first`, and each tier `fan_out` times as large as the last one."""
    tier = 0
    while size >= first:
        tier, first = tier + 1, first * fan_out
    return tier


def merges_of_tiers(sizes: Sequence[int], fan_out: int, first: int, tiers: int) -> list[tuple[int, ...]]:
    """Return the groups of places whose sizes become one, `fan_out` of a tier, the earliest places first,
    each in ascending order. What becomes one in a tier is merged on at once where the next one is full then.
    Only the first `tiers` are merged, so that no merge is larger than their sizes allow.
    """
    of_tier: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)

    def add(group: tuple[int, ...]) -> None:
        of_tier[tier_of(sum(sizes[place] for place in group), fan_out, first)].append(group)

    for place in range(len(sizes)):
        add((place,))
    for tier in range(tiers):
        while len(of_tier[tier]) >= fan_out:
            together, of_tier[tier] = of_tier[tier][:fan_out], of_tier[tier][fan_out:]
            add(tuple(sorted(place for group in together for place in group)))
    return [group for groups in of_tier.values() for group in groups if len(group) > 1]


def best_repaid(sizes: Sequence[int], most: int, left_at_most: int) -> int | None:
    """Return how many of the smallest to merge, by their sizes in ascending order: up to the one whose
    rewriting the others repay best. Two or more, of no more than `most` together, so that no more than
    `left_at_most` are left. None if there are none such.
    """
    choices = []
    below = sizes[0]
    for count, largest in enumerate(sizes[1:], start=2):
        if below + largest > most:
            break
        if len(sizes) - count <= left_at_most:
            choices.append((Fraction(largest, max(1, below)), -count))
        below += largest
    return -min(choices)[1] if choices else None
