"""Check the head's properties: the guards against other writers, the applications, the probed stores."""

from __future__ import annotations

from collections.abc import Iterator

from timeline import names, properties
from timeline.clock import Environment
from timeline.diagnosis.findings import Finding, damage, note, some, warning
from timeline.diagnosis.lineage import Lineage
from timeline.drafts.succession import probed_stores
from timeline.errors import CorruptTableError, StoreUnavailableError, UnsafeStoreError
from timeline.stores.base import Store
from timeline.stores.probe import check_store
from timeline.versions.transactions import TransactionState, state_of
from timeline.versions.version_file import Version
from timeline.versions.work_items import applications_of_items, published_items

_EDIT = "stop all writers, keep a copy of {path}, and edit the property in it"
_LINEAGE = (properties.RECENT_COMMITS, properties.PARENT_VERSION, properties.PARENT_COMMIT_ID)


def applications(head: Version) -> dict[str, TransactionState | None]:
    """Return the state of each application in the head; None where it cannot be read."""
    prefix = properties.TRANSACTION_PREFIX
    app_ids = [key.removeprefix(prefix) for key in sorted(head.metadata.properties) if key.startswith(prefix)]
    return {app_id: _state(head, app_id) for app_id in app_ids}


def check_state(lineage: Lineage, head: Version, location: str) -> Iterator[Finding]:
    """Yield what is wrong with the head's properties."""
    yield from _check_guards(head, location)
    yield from _check_lineage_is_stated(head)
    yield from _check_live_versions_are_logged(lineage, head)
    yield from _check_applications(head)
    yield from check_work_items(head)


def check_the_store_is_safe(
    store: Store, head: Version, probe: bool, environment: Environment
) -> Iterator[Finding]:
    """Yield what the probe found, or, without it, whether the table has recorded one for this store."""
    if probe:
        try:
            check_store(store, environment)
        except UnsafeStoreError as refusal:
            yield damage(
                kind="store-unsafe",
                what=str(refusal),
                means="two writers can both win a version on this store, and acknowledged rows be lost."
                " Writers that come through this endpoint or client refuse it at their start",
                repair="stop all writers, and move the stream to a store that keeps create-if-absent",
            )
        except StoreUnavailableError as failure:
            yield note(
                kind="store-not-probed",
                what=str(failure),
                means="whether the store is safe to write to could not be seen: the probe writes keys under"
                f" {names.PROBE_FOLDER}/, for which there may be no right here",
                repair="none needed for reading; probe with a writer's credentials",
            )
        return
    probed = probed_stores(head.metadata.properties)
    if store.signature not in probed:
        yield note(
            kind="store-not-probed",
            what=f"the table has recorded no probe of {store.signature!r}, only of: {some(probed)}",
            means="a new endpoint or client version; its first writer probes it before it writes",
            repair="none needed; to know it now, run the doctor with its probe",
        )


def _check_guards(head: Version, location: str) -> Iterator[Finding]:
    stated = head.metadata.properties
    wanted = {properties.METADATA_PATH: f"{location}/metadata", properties.GC_ENABLED: "false"}
    for key, value in wanted.items():
        if stated.get(key) != value:
            yield warning(
                kind="guard-missing",
                what=f"property {key} is {stated.get(key)!r} and must be {value!r}",
                means="it keeps other engines' writers and cleaners off this table. Without it they may"
                " commit over our versions or delete files that are about to be committed. Nothing is lost"
                " yet",
                repair=_EDIT.format(path=names.version_path(head.number)) + f" back to {value!r}",
            )


def _check_lineage_is_stated(head: Version) -> Iterator[Finding]:
    missing = [key for key in _LINEAGE if key not in head.metadata.properties]
    own = head.metadata.properties.get(properties.RECENT_COMMITS, "").rpartition(",")[2] == head.commit_id
    if missing or not own:
        yield damage(
            kind="lineage-broken",
            what=f"version {head.number} "
            + (f"lacks {some(missing)}" if missing else "does not name its own commit as the last"),
            means="a writer could not decide whether its own commit is in the table: do not write",
            repair=f"stop all writers and restore {names.version_path(head.number)} from a backup",
        )


def _check_live_versions_are_logged(lineage: Lineage, head: Version) -> Iterator[Finding]:
    logged = {names.version_number(entry.metadata_file) for entry in head.metadata.metadata_log}
    strays = {*lineage.strays, *lineage.held}
    unlogged = [n for n in lineage.versions if n not in logged and n != head.number and n not in strays]
    if unlogged:
        yield warning(
            kind="version-not-logged",
            what=f"not in the metadata log: {some([f'version {n}' for n in sorted(unlogged)])}",
            means="no row is at risk, and writers may go on. Other engines' cleaners take such a version file"
            " for an orphan",
            repair="none needed if no other engine cleans here: retention removes old versions in time",
        )


def check_work_items(head: Version) -> Iterator[Finding]:
    """Yield the applications whose published work items cannot be read."""
    for app_id in applications_of_items(head.metadata.properties):
        try:
            published_items(head.metadata.properties, app_id)
        except CorruptTableError as unreadable:
            yield damage(
                kind="work-items-unreadable",
                what=f"which work items of {app_id!r} are in the table cannot be read: {unreadable}",
                means="no worker can publish an item of this buffer zone: whether its rows are in the table"
                " is not known. Other writers may go on",
                repair=f"restore {names.version_path(head.number)} from a backup, or copy the property from"
                " the version before",
            )


def _check_applications(head: Version) -> Iterator[Finding]:
    for app_id, state in applications(head).items():
        path = names.version_path(head.number)
        if state is None:
            yield damage(
                kind="application-unreadable",
                what=f"what the table remembers of application {app_id!r} cannot be read:"
                f" {head.metadata.properties[properties.TRANSACTION_PREFIX + app_id][:100]!r}",
                means="this application cannot commit: whether its batch is in the table is not known. Others"
                " may go on",
                repair=f"restore {path} from a backup, or copy the property from the version before",
            )
        elif state.commit > head.commit_id:
            yield damage(
                kind="application-ahead",
                what=f"application {app_id!r} has committed batch {state.batch} with commit {state.commit},"
                f" which is later than the newest version's, {head.commit_id}",
                means="the state was taken from a version that is not in this table: its rows may be missing,"
                " and the application would skip them",
                repair="stop the application; look for versions that were deleted, and restore them. Without"
                " a copy, compare the table with the source up to that batch before it goes on",
            )


def _state(head: Version, app_id: str) -> TransactionState | None:
    try:
        return state_of(head.metadata.properties, app_id)
    except CorruptTableError:
        return None
