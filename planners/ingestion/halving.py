"""Halving: which of the files of a work item make it fail, found by trying halves of them.

Nothing is known of the reason but that it repeats. A half that fails is halved again, until single files are
left; a half that passes is done with. The earlier files are tried first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

_MOST_WITHOUT_A_PASS = 16
"""So many single files fail before any part has passed: then no file is known not to fail, and the reason is
not known to be theirs.
"""


@dataclass(frozen=True, slots=True)
class Halving:
    """What the tries so far have shown. A value: `after` returns the next one.

    Of n files of which k fail by themselves it takes at most 2·k·⌈log2(n)⌉ tries to find these k.
    """

    waiting: tuple[tuple[int, ...], ...]
    """Parts that are to be tried, the next one first."""
    failed: tuple[int, ...] = ()
    """Files that failed when they were tried alone."""
    passed: bool = False
    """Whether a part has passed."""
    own: tuple[int, ...] = ()
    """Files that failed alone for a reason that is known to be theirs."""

    @property
    def next(self) -> tuple[int, ...] | None:
        """The files to try together; None where nothing is left to try."""
        given_up = len(self.failed) - len(self.own) >= _MOST_WITHOUT_A_PASS and not self.passed
        return self.waiting[0] if self.waiting and not given_up else None

    @property
    def at_fault(self) -> tuple[int, ...]:
        """The files at fault, as far as is known once nothing is left to try. Where no part has passed, those
        alone whose reason is known to be theirs; none are where files fail together that pass apart: then the
        files are not the reason.
        """
        return self.failed if self.passed else self.own

    def after(self, *, fails: bool, shows: bool | None = None) -> Halving:
        """Return what is known after the next part was tried. `shows`: where it passes, whether that says
        that others could, as it does not where no file of the part was landed; where it fails, whether the
        reason is known to be its files'. By default a pass shows, and a failure does not.
        """
        shows = not fails if shows is None else shows
        tried, *waiting = self.waiting
        if not fails:
            return replace(self, waiting=tuple(waiting), passed=self.passed or shows)
        if len(tried) == 1:
            own = (*self.own, *tried) if shows else self.own
            return replace(self, waiting=tuple(waiting), failed=(*self.failed, *tried), own=own)
        return replace(self, waiting=(*_halves(tried), *waiting))


def halve(files: Iterable[int]) -> Halving:
    """Return what to try of files that have failed together. Of one file nothing: it has nothing to be
    compared with.
    """
    given = tuple(files)
    return Halving(_halves(given) if len(given) > 1 else ())


def _halves(files: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    middle = (len(files) + 1) // 2
    return files[:middle], files[middle:]
