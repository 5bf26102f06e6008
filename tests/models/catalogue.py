"""Every model, how many states it has, and what happens without each of its rules."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tests.models.checker import Model
from tests.models.expiry import Expiry
from tests.models.fence import Fence
from tests.models.publishing import Publishing
from tests.models.reading import Reading


@dataclass(frozen=True)
class Sound:
    """A model with all its rules: the states that it has."""

    model: Any
    states: int

    def __str__(self) -> str:
        return _name(self.model)


@dataclass(frozen=True)
class Broken:
    """A model without one rule: the violation, and how many steps lead there at least."""

    whole: Any
    without: str
    steps: int
    violation: str

    @property
    def model(self) -> Model[Any]:
        without: Model[Any] = replace(self.whole, **{self.without: False})
        return without

    def __str__(self) -> str:
        return f"{_name(self.whole)} without {self.without}"


def _name(model: Any) -> str:
    """Return the model's name, with the settings that are not the usual ones."""
    unusual = [f.name for f in fields(model) if getattr(model, f.name) != f.default]
    name = type(model).__name__.lower()
    return f"{name} with {', '.join(unusual)}" if unusual else name


SOUND = (
    Sound(Publishing(), 161_872),
    Sound(Publishing(own_batches=True), 254_396),
    Sound(Reading(), 5_721),
    Sound(Fence(), 24_639),
    Sound(Expiry(), 16_653),
)

BROKEN = (
    Broken(Publishing(), "confirms", 6, "was told"),
    Broken(Publishing(), "confirms_by_listing", 6, "was told"),
    Broken(Publishing(own_batches=True, oldest_first=True), "confirms_by_listing", 12, "was told"),
    Broken(Publishing(), "unknown_is_not_failed", 3, "were deleted"),
    Broken(Publishing(), "unanswered_is_judged_by_listing", 8, "were deleted"),
    Broken(Publishing(own_batches=True, patient=True), "unanswered_is_judged_by_listing", 10, "twice"),
    Broken(Publishing(), "forgotten_is_not_lost", 5, "were deleted"),
    Broken(Publishing(), "sweeps_only_its_own", 6, "were deleted"),
    Broken(Publishing(), "tells_on_listed_heads_only", 8, "was told"),
    Broken(Publishing(), "checks_the_batch", 4, "twice"),
    Broken(Reading(), "reads_what_was_listed", 7, "a fork"),
    Broken(Reading(), "never_steps_back", 6, "older than"),
    Broken(Reading(), "takes_the_highest", 5, "older than"),
    Broken(Reading(), "keeps_the_highest", 2, "no table"),
    Broken(Fence(), "commits_a_fence", 6, "was deleted"),
    Broken(Fence(looks_before_commit=True), "commits_a_fence", 7, "was deleted"),
    Broken(Fence(), "checks_every_attempt", 10, "was deleted"),
    Broken(Fence(), "judges_behind_the_fence", 10, "was deleted"),
    Broken(Fence(), "writes_again_under_new_ids", 8, "was deleted"),
    Broken(Expiry(), "expires_first", 3, "was deleted"),
    Broken(Expiry(), "waits_for_grace", 5, "within grace"),
    Broken(Expiry(), "recomputes_after_a_loss", 4, "a tag names"),
    Broken(Expiry(), "tags_pin", 4, "a tag names"),
    Broken(Expiry(), "cleaner_spares_the_expired", 5, "within grace"),
)
