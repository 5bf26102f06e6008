"""The names of a table's files, and what they record: each spelling next to its inverse.

Standard library only: Spark workers import this.

docs/protocol.md has the layout (The files of a table). Every <id> there is a ULID
(https://github.com/ulid/spec): 48 bits of milliseconds, 80 random bits, in Crockford's base 32. The garbage
fence (R6) compares them as text, so their time is the driver's, and follows the table's.
"""

from __future__ import annotations

import re
from functools import reduce
from hashlib import blake2b

VERSION_FOLDER = "metadata"
MANIFEST_FOLDER = "metadata/m"
DATA_FOLDER = "data"
TOMBSTONE_FOLDER = "_timeline/tombstones"
PROBE_FOLDER = "_timeline/probe"
EXPIRED_FOLDER = "_timeline/expired"
OUTBOX_FOLDER = "_timeline/outbox"
CATALOG_PROBE_FOLDER = "_timeline/catalog-probe"
STATE_FOLDER = "_timeline/state"
COPY_FOLDER = "_timeline/manifests"
MIRROR_FOLDER = "_timeline/mirrors"
STATE_DIGEST_LETTERS = 32
STATE_FILE_PATH_BYTES = len(f"{STATE_FOLDER}/-.txt") + 26 + STATE_DIGEST_LETTERS
HINT_PATH = "metadata/version-hint.text"

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VERSION = re.compile(r"^v([1-9][0-9]*)\.metadata\.json$")
_ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_ID = re.compile(rf"^({_ULID})-")
_ORDER = "[0-9a-f]{12}"
_CLUSTERED = re.compile(rf"^{_ULID}-clustered-({_ORDER})-([0-9]+)-[0-9]+-[0-9]+-[0-9]+\.parquet$")
_WRITTEN = re.compile(
    rf"^(?:(?:{DATA_FOLDER}/(?:.+/)?|{OUTBOX_FOLDER}/)({_ULID})-(?:[A-Za-z0-9]{{1,8}}|clustered-{_ORDER}-[0-9]+)"
    r"-[0-9]+-[0-9]+-[0-9]+(?:-deletes|-tombstones)?\.parquet"
    rf"|{MANIFEST_FOLDER}/({_ULID})-(?:[0-9A-Za-z]+-){{0,5}}(?:manifest|list)\.avro"
    rf"|{COPY_FOLDER}/({_ULID})-(?:[0-9A-Za-z]+-){{0,5}}manifest\.files"
    rf"|{TOMBSTONE_FOLDER}/({_ULID})-[A-Za-z0-9]{{1,8}}-[0-9]+-[0-9]+-[0-9]+-tombstones\.parquet"
    rf"|{STATE_FOLDER}/({_ULID})-[0-9a-f]{{{STATE_DIGEST_LETTERS}}}\.txt)$"
)
_KIND = "[a-z][a-z0-9-]*"
_FIRST_KIND = "clustering"
_PLAN_ID = re.compile(rf"(?:(?!{_FIRST_KIND}/)({_KIND})/)?({_ULID})")
_INSTANT = re.compile(
    rf"^_timeline/({_KIND})/({_ULID})"
    r"-(?:(requested)\.avro|(inflight)-([1-9][0-9]*)\.json|(completed|cancelled)\.json)$"
)
_KEY_RUN = re.compile(rf"^_timeline/index/[0-9a-f]+/({_ULID})\.run$")
_STATE_FILE = re.compile(rf"^{STATE_FOLDER}/({_ULID})-([0-9a-f]{{{STATE_DIGEST_LETTERS}}})\.txt$")
_MIRRORED = re.compile(rf"^{MIRROR_FOLDER}/([0-9a-f]{{12}})-v([1-9][0-9]*)-([0-9]+)\.json$")
_EXPIRED = re.compile(rf"^{EXPIRED_FOLDER}/(?:[0-9a-f-]{{36}}/)?v([1-9][0-9]*)-({_ULID})\.json$")


def version_path(number: int) -> str:
    """Return the path of version `number` (1 or more), below the table's location."""
    if number < 1:
        raise ValueError(f"versions count from 1, not {number}")
    return f"{VERSION_FOLDER}/v{number}.metadata.json"


def version_number(path: str) -> int | None:
    """Return the number that a path in the version folder spells, or None if it is no version file."""
    match = _VERSION.match(path.rpartition("/")[2])
    return int(match.group(1)) if match else None


def hint_text(number: int) -> bytes:
    """Return the hint file's bytes: digits, no newline (a newline breaks DuckDB, pyiceberg and Polars)."""
    return str(number).encode("ascii")


def ulid(time_ms: int, random_bits: int) -> str:
    """Return the ULID of a time in milliseconds and 80 random bits."""
    value = (time_ms << 80) | (random_bits & ((1 << 80) - 1))
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def ulid_floor(time_ms: int) -> str:
    """Return the smallest ULID of a time."""
    return ulid(time_ms, 0)


def ulid_time_ms(file_id: str) -> int:
    """Return the milliseconds at the start of an id; the inverse of `ulid_floor`."""
    return _number(file_id[:10])


def ulid_random_bits(file_id: str) -> int:
    """Return the 80 bits at the end of an id."""
    return _number(file_id[10:])


def _number(letters: str) -> int:
    return reduce(lambda value, letter: value * 32 + _ALPHABET.index(letter), letters, 0)


def manifest_path(file_id: str, stated: str = "") -> str:
    return f"{MANIFEST_FOLDER}/{file_id}-{stated}manifest.avro"


def manifest_list_path(file_id: str) -> str:
    return f"{MANIFEST_FOLDER}/{file_id}-list.avro"


def data_file_name(file_id: str, app_id: str, batch: int, bucket: int, attempt: int) -> str:
    """Return the last part of a data file's path, in which `app_id` has its first eight letters and digits.
    The name is for people and for the fence; only its id is ever parsed.
    """
    app = re.sub(r"[^A-Za-z0-9]", "", app_id)[:8] or "app"
    return f"{file_id}-{app}-{batch}-{bucket}-{attempt}.parquet"


def delete_file_name(file_id: str, app_id: str, batch: int, bucket: int, attempt: int) -> str:
    """Return the last part of a position-delete file's path. The suffix is for people."""
    return data_file_name(file_id, app_id, batch, bucket, attempt).replace(".parquet", "-deletes.parquet")


def tombstone_path(file_id: str, app_id: str, batch: int, folder: str) -> str:
    """Return the path of a file of deleted keys. The suffix is for people."""
    name = data_file_name(file_id, app_id, batch, 0, 0).replace(".parquet", "-tombstones.parquet")
    return f"{folder}/{name}"


def clustered_file_name(file_id: str, order: str, level: int, group: int, number: int, attempt: int) -> str:
    """Return the last part of the path of a file that clustering wrote, with its order and level, which only
    the name records: Iceberg has no field for curves, or for how often rows were sorted. They are advice: a
    wrong name costs a rewrite, never a row. No `data_file_name` has this form, for any app.
    """
    return f"{file_id}-clustered-{order_digest(order)}-{level}-{group}-{number}-{attempt}.parquet"


def rewritten_file_name(path: str, file_id: str, app_id: str, group: int, number: int, attempt: int) -> str:
    """Return the last part of the path of a file with the rows of `path` in the same order and level."""
    match = _CLUSTERED.match(path.rpartition("/")[2])
    if match is None:
        return data_file_name(file_id, app_id, group, number, attempt)
    return f"{file_id}-clustered-{match.group(1)}-{match.group(2)}-{group}-{number}-{attempt}.parquet"


def clustering_of(path: str) -> tuple[str, int] | None:
    """Return the digest of the order and the level that a file's name records; None for a file that
    clustering did not sort. The inverse of `clustered_file_name`.
    """
    match = _CLUSTERED.match(path.rpartition("/")[2])
    return (match.group(1), int(match.group(2))) if match else None


def order_digest(order: str) -> str:
    """Return the digest of an order's name, which may be long, for the names of files."""
    return blake2b(order.encode(), digest_size=6).hexdigest()


def file_id(path: str) -> str | None:
    """Return the id in a file's name, or None for a name of another form (another engine's file)."""
    match = _ID.match(path.rpartition("/")[2])
    return match.group(1) if match else None


def written_id(path: str) -> str | None:
    """Return the id of a file that this protocol wrote, by its path below the table. None for others, which
    no cleaner may touch: versions, the hint, the rest of `_timeline`, other engines' files.
    """
    match = _WRITTEN.match(path)
    return next(filter(None, match.groups())) if match else None


def is_manifest_list(path: str) -> bool:
    return path.endswith("-list.avro")


def expired_folder(owner: str) -> str:
    """Return the folder of notes on expired snapshots. `owner`: the uuid of a table that may share it."""
    return f"{EXPIRED_FOLDER}/{owner}" if owner else EXPIRED_FOLDER


def expired_path(version: int, commit_id: str, owner: str = "") -> str:
    """Return the path of the note on the snapshots that a version's commit removed from the metadata."""
    return f"{expired_folder(owner)}/v{version}-{commit_id}.json"


def expired_version(path: str) -> tuple[int, str] | None:
    """Return the version and commit id of such a note's path, or None if it is none."""
    match = _EXPIRED.match(path)
    return (int(match.group(1)), match.group(2)) if match else None


def mirrored_path(digest: str, version: int, time_ms: int) -> str:
    """Return the path of the note that a mirror names a version, which has that time."""
    return f"{MIRROR_FOLDER}/{digest}-v{version}-{time_ms}.json"


def mirrored_parts(path: str) -> tuple[str, int, int] | None:
    """Return the digest, the version and its time in such a note's path, or None if it is none."""
    match = _MIRRORED.match(path)
    return (match.group(1), int(match.group(2)), int(match.group(3))) if match else None


def mirror_fork_path(digest: str) -> str:
    """Return the path of the note that a mirror was found to be a fork."""
    return f"{MIRROR_FOLDER}/{digest}-fork.json"


def key_run_folder(key_digest: str) -> str:
    """Return the folder of the runs of one key's index."""
    return f"_timeline/index/{key_digest}"


def key_run_path(key_digest: str, run_id: str) -> str:
    """Return the path of a run of a key's index; its id is a ULID."""
    return f"{key_run_folder(key_digest)}/{run_id}.run"


def key_run_id(path: str) -> str | None:
    """Return the id in a run's path, or None if it is none."""
    match = _KEY_RUN.match(path)
    return match.group(1) if match else None


def state_file_path(file_id: str, digest: str) -> str:
    """Return the path of a file with the value of a property; the digest is of its bytes, in hex."""
    return f"{STATE_FOLDER}/{file_id}-{digest}.txt"


def state_file_parts(path: str) -> tuple[str, str]:
    """Return the id and the digest in a state file's path; two "" for another path."""
    match = _STATE_FILE.match(path)
    return (match.group(1), match.group(2)) if match else ("", "")


def plan_folder(kind: str) -> str:
    """Return the folder of the plans of one kind."""
    return f"_timeline/{kind}"


def plan_id(kind: str, ulid: str) -> str:
    """Return the id of a plan: its kind and a ULID, such as "consolidation/01JXVG…".

    Clustering plans are the ULID alone: they were the first kind, and tables in use name them so.
    """
    return ulid if kind == _FIRST_KIND else f"{kind}/{ulid}"


def plan_kind(plan_id: str) -> str:
    """Return the kind that a plan's id names. ValueError for a text that is no such id."""
    return _plan_parts(plan_id)[0]


def plan_ulid(plan_id: str) -> str:
    """Return the ULID of a plan's id. ValueError for a text that is no such id."""
    return _plan_parts(plan_id)[1]


def is_plan_id(text: str) -> bool:
    return _PLAN_ID.fullmatch(text) is not None


def requested_path(plan_id: str) -> str:
    """Return the path of a plan."""
    return f"{_plan_path(plan_id)}-requested.avro"


def inflight_path(plan_id: str, claim: int) -> str:
    """Return the path of an executor's claim on a plan; claims count from 1, and the highest is in force."""
    return f"{_plan_path(plan_id)}-inflight-{claim}.json"


def completed_path(plan_id: str) -> str:
    """Return the path of the note that a plan was executed."""
    return f"{_plan_path(plan_id)}-completed.json"


def cancelled_path(plan_id: str) -> str:
    """Return the path of the note that a plan was cancelled."""
    return f"{_plan_path(plan_id)}-cancelled.json"


def instant_of(path: str) -> tuple[str, str, int] | None:
    """Return the plan id, the state and the claim (0 except for inflight) of an instant's path, or None."""
    match = _INSTANT.match(path)
    if match is None:
        return None
    kind, ulid, requested, inflight, claim, ended = match.groups()
    return plan_id(kind, ulid), requested or inflight or ended, int(claim or 0)


def _plan_path(plan_id: str) -> str:
    kind, ulid = _plan_parts(plan_id)
    return f"{plan_folder(kind)}/{ulid}"


def _plan_parts(plan_id: str) -> tuple[str, str]:
    match = _PLAN_ID.fullmatch(plan_id)
    if match is None:
        raise ValueError(f"not the id of a plan: {plan_id!r}")
    return match.group(1) or _FIRST_KIND, match.group(2)
