"""A disk that forgets: what a power cut may leave of a folder, by what was asked of the file system before.

POSIX promises little. A file's bytes are safe once the file was synced; a name is there, or gone, for certain
once its folder was synced after. All else may have reached the disk at a cut or not, name by name and file by
file, in any order. Real file systems promise more, each something else; nothing here leans on that.

`Recorder` watches a folder through the functions of `os` and writes down what happens to it. `Disk` replays
such a record up to any moment, and tells the states that a cut at that moment may leave.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import random

    import pytest

_T = TypeVar("_T")
_ROOT = 0
_TWO_NAMES = ("link", "rename", "replace")
_CHANGES = (*_TWO_NAMES, "unlink", "remove", "mkdir", "rmdir")


@dataclass(frozen=True)
class Wrote:
    """A file, by its number, holds these bytes now."""

    file: int
    data: bytes


@dataclass(frozen=True)
class Named:
    """A name in a folder means this file or folder now, or nothing."""

    folder: int
    name: str
    target: int | None
    is_folder: bool = False


@dataclass(frozen=True)
class Synced:
    """All of this file's bytes, or all of this folder's names, are on the disk."""

    target: int


@dataclass(frozen=True)
class Told:
    """Somebody outside was told something, and will hold the disk to it."""

    what: Any


Event = Wrote | Named | Synced | Told


class _KilledError(BaseException):
    """The watched process is dead. No Exception, since code that catches those would live on."""


class Recorder:
    """Watches a folder: every change of a name or of bytes, and every sync, in their order."""

    def __init__(self, root: Path) -> None:
        self.events: list[Event] = []
        self.calls: list[str] = []
        """The calls that change or sync something, each with the last name that it was given."""
        self.deaf_to = ""
        """Syncs of a "file" or of a "folder" that are not heard, as if the code did not ask for them."""
        self._root = root
        self._dies_at: int | None = None
        self._dead = False
        self._numbers = {_identity(os.stat(root)): _ROOT}
        self._next = itertools.count(_ROOT + 1)
        self._names: dict[tuple[int, str], tuple[int, bool]] = {}
        self._data: dict[int, bytes] = {}

    def run(
        self, monkeypatch: pytest.MonkeyPatch, life: Callable[[], Any], dies_at: int | None = None
    ) -> None:
        """Record what `life` does. With `dies_at` it ends, as by kill -9, before that call of this life."""
        self._dead = False
        self._dies_at = None if dies_at is None else len(self.calls) + dies_at
        with monkeypatch.context() as patch:
            for name in _CHANGES:
                patch.setattr(os, name, self._changing(name, getattr(os, name)))
            patch.setattr(os, "open", self._opening(os.open))
            for name in ("fsync", "fdatasync"):
                patch.setattr(os, name, self._syncing(getattr(os, name)))
            try:
                life()
            except _KilledError:
                self._dead = True
            else:
                self._look()

    def tell(self, what: Any) -> None:
        self._look()
        self.events.append(Told(what))

    def _changing(self, name: str, call: Callable[..., _T]) -> Callable[..., _T | None]:
        def watched(*arguments: Any, **options: Any) -> _T | None:
            if self._dead:  # it is cleaning up, which the dead do not
                return None
            self._count(name, arguments[name in _TWO_NAMES])
            self._look()
            try:
                return call(*arguments, **options)
            finally:
                self._look()

        return watched

    def _opening(self, call: Callable[..., int]) -> Callable[..., int]:
        def watched(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if not flags & os.O_CREAT:
                return call(path, flags, *arguments, **options)
            self._count("open", path)
            self._look()
            try:
                return call(path, flags, *arguments, **options)
            finally:
                self._look()

        return watched

    def _syncing(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def watched(descriptor: int) -> None:
            if self._dead:
                return
            status = os.fstat(descriptor)
            kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
            self._count("fsync", kind)
            self._look()
            call(descriptor)
            number = self._numbers.get(_identity(status))
            if number is not None and kind != self.deaf_to:
                self.events.append(Synced(number))

        return watched

    def _count(self, call: str, path: Any) -> None:
        if len(self.calls) == self._dies_at:
            self._dead = True
        if self._dead:
            raise _KilledError
        self.calls.append(f"{call} {os.path.basename(path)}")

    def _look(self) -> None:
        """Write down what is not as it was at the last look, by whichever call it came about."""
        names: dict[tuple[int, str], tuple[int, bool]] = {}
        seen = {_identity(os.stat(self._root)): _ROOT}
        folders = [(self._root, _ROOT)]
        for folder, number in folders:
            for entry in os.scandir(folder):
                status = entry.stat(follow_symlinks=False)
                identity, is_folder = _identity(status), stat.S_ISDIR(status.st_mode)
                # A file that has lost its last name lost its number with it: the next one may get its inode.
                target = seen[identity] = (
                    self._numbers.get(identity) or seen.get(identity) or next(self._next)
                )
                names[number, entry.name] = target, is_folder
                if is_folder:
                    folders.append((Path(entry.path), target))
                elif (data := Path(entry.path).read_bytes()) != self._data.get(target, b""):
                    self._data[target] = data
                    self.events.append(Wrote(target, data))
        self._numbers = seen
        for key in self._names.keys() | names.keys():
            if names.get(key) != self._names.get(key):
                self.events.append(Named(*key, *names.get(key, (None, False))))
        self._names = names


Choice = Callable[[Any, Sequence[Any]], Any]
"""What a cut makes of one name or one file: of what is safe, and of what came after it, oldest first."""


def lose(safe: _T, later: Sequence[_T]) -> _T:
    """Nothing that was not synced has reached the disk."""
    return safe


def keep(safe: _T, later: Sequence[_T]) -> _T:
    """All that was ever asked for has reached the disk."""
    return later[-1] if later else safe


def names_first(safe: _T, later: Sequence[_T]) -> _T:
    """Every name has reached the disk, and no byte that was not synced: what careless writers meet."""
    return safe if isinstance(safe, bytes) else keep(safe, later)


def at_random(chance: random.Random) -> Choice:
    """Each name and each file by itself; bytes may have been stored in part, or as zeros."""

    def choose(safe: Any, later: Sequence[Any]) -> Any:
        chosen = chance.choice([safe, *later])
        if later and isinstance(chosen, bytes) and chosen and chance.random() < 0.5:
            return chance.choice([chosen[: chance.randrange(len(chosen))], bytes(len(chosen))])
        return chosen

    return choose


@dataclass
class _Layers:
    """A name's or a file's safe value, and those that it was given since."""

    safe: Any
    later: list[Any] = field(default_factory=list)

    def sync(self) -> None:
        self.safe, self.later = keep(self.safe, self.later), []


class Disk:
    """The folder as far as the record was replayed, with what of it is safe."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        """What was told so far."""
        self._files: dict[int, _Layers] = {}
        self._folders: dict[int, dict[str, _Layers]] = {_ROOT: {}}

    def replay(self, event: Event) -> None:
        if isinstance(event, Told):
            self.told.append(event.what)
        elif isinstance(event, Wrote):
            self._file(event.file).later.append(event.data)
        elif isinstance(event, Named):
            if event.is_folder and event.target is not None:
                self._folders.setdefault(event.target, {})
            self._folders[event.folder].setdefault(event.name, _Layers(None)).later.append(event.target)
        else:
            layers = self._folders.get(event.target)
            for each in [self._file(event.target)] if layers is None else layers.values():
                each.sync()

    def state(self, choose: Choice) -> State:
        """Return what a cut leaves of the folder, by path; None stands for a folder."""
        found: dict[str, bytes | None] = {}
        data: dict[int, bytes] = {}
        folders = [(_ROOT, "")]
        for number, path in folders:
            for name, layers in self._folders[number].items():
                target = choose(layers.safe, layers.later)
                if target in self._folders:
                    found[path + name] = None
                    folders.append((target, f"{path}{name}/"))
                elif target is not None:
                    if target not in data:
                        file = self._file(target)
                        data[target] = choose(file.safe, file.later)
                    found[path + name] = data[target]
        return frozenset(found.items())

    def _file(self, number: int) -> _Layers:
        return self._files.setdefault(number, _Layers(b""))


State = frozenset[tuple[str, "bytes | None"]]


def states(events: Sequence[Event], choices: Sequence[Choice]) -> Iterator[tuple[int, list[Any], State]]:
    """Yield what each choice leaves after each event, as (events so far, what was told so far, state).

    A state that follows another one, with no more told since, comes once.
    """
    disk = Disk()
    known: set[State] = set()
    for count, event in enumerate(events, 1):
        disk.replay(event)
        if isinstance(event, Told):
            known.clear()
        for choose in choices:
            state = disk.state(choose)
            if state not in known:
                known.add(state)
                yield count, list(disk.told), state


def put(state: State, folder: Path) -> None:
    """Write a state into an empty folder."""
    for path, data in sorted(state):
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
