"""The command line, `streaming-sink COMMAND LOCATION`. No Spark is started, but by `cluster` and `replay`.

A command is a function of its arguments that says what it found and returns the exit code. What reads a
table is imported inside of it, so that `--help` takes no second. Credentials come from the environment, as
obstore reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from streaming_sink import __version__
from streaming_sink.commands import clustering, earlier, inspecting, mirroring, purging
from streaming_sink.commands import declaring as keys
from streaming_sink.commands import quarantined as quarantine
from streaming_sink.commands.arguments import also, of_a_table
from streaming_sink.commands.ingesting import workers
from streaming_sink.commands.terminal import CANNOT, DONE, FINDINGS, say, say_either, say_json
from streaming_sink.commands.wording import refuse_in_options
from streaming_sink.commands.zones import search_zones, with_zone_findings, zones

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable
    from timeline.diagnosis import Diagnosis

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None, program: str = "streaming-sink") -> int:
    """Run one command and return its exit code. Errors go to stderr."""
    try:
        code: int = _commands.main(arguments, prog_name=program, standalone_mode=False)
    except click.ClickException as misuse:
        misuse.show()
        return CANNOT
    except click.Abort:
        return _INTERRUPTED
    return code


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit code 0: done, and all is well; 1: there is something to look at; 2: the table could not be"
    " looked at.",
)
@click.version_option(__version__)
def _commands() -> None:
    """Look at a table that IcebergSink writes, and maintain it. COMMAND --help says more."""


@click.command()
@of_a_table
@click.option(
    "--probe/--no-probe",
    default=True,
    help="Race creates on the store, or do not. The probe's own keys under _timeline/probe/ are all that the"
    " doctor ever writes, and it removes them.",
)
@click.option("--keys", "with_keys", is_flag=True, help="Also read all keys of a table that has a key.")
@click.option(
    "--gone",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Also look for a key that is to be gone, in every file of the table and of its second tables; one of"
    " several columns has commas between them. May be repeated.",
)
@also
@zones
def doctor(
    table: KnownTable,
    as_json: bool,
    probe: bool,
    with_keys: bool,
    gone: tuple[str, ...],
    also: tuple[str, ...],
    zones: tuple[str, ...],
) -> int:
    """Look for damage and say how to repair it; changes nothing."""
    if (also or zones) and not gone:
        raise ValueError("--also and --zone say where --gone is to look, which is missing")

    diagnosis = _diagnosed(table, probe=probe)
    if with_keys:
        from streaming_sink.reading.duplicate_keys import with_key_findings

        diagnosis = with_key_findings(diagnosis, table.open())
    if gone:
        from streaming_sink.removal.gone import with_gone_findings
        from streaming_sink.removal.wanted import WantedKeys

        wanted = WantedKeys.parse(gone)
        diagnosis = with_gone_findings(diagnosis, table, wanted, also)
        searched = search_zones(zones, table, wanted, purge=False)
        diagnosis = with_zone_findings(diagnosis, searched)
    if as_json:
        found = [
            {
                "kind": it.kind,
                "severity": it.severity.name.lower(),
                "what": it.what,
                "means": it.means,
                "repair": it.repair,
            }
            for it in diagnosis.findings
        ]
        say_json(
            {
                "location": diagnosis.location,
                "healthy": diagnosis.healthy,
                "facts": [{"name": name, "value": value} for name, value in diagnosis.facts],
                "findings": found,
            }
        )
    else:
        say(diagnosis.text())
    return DONE if diagnosis.healthy else FINDINGS


def _diagnosed(table: KnownTable, *, probe: bool) -> Diagnosis:
    from streaming_sink.options.values.tables import CatalogTable
    from timeline import diagnosis

    if isinstance(table, CatalogTable):
        return diagnosis.doctor_in_catalog(
            table.open(), table.location, lambda address: table.beside(address).open()
        )
    return diagnosis.doctor(table.location, table.storage_options, probe=probe)


@click.command()
@of_a_table
def history(table: KnownTable, as_json: bool) -> int:
    """Print a line for every batch that the table remembers. Oldest first."""
    from streaming_sink.reports.batch_report import history as reports_of

    reports = reports_of(table)
    if as_json:
        say_json(reports)
        return DONE
    for report in reports:
        say(report.line())
    return DONE


_dry_run = click.option("--dry-run", is_flag=True, help="Only say what would go, and why.")


@click.command()
@of_a_table
@_dry_run
@click.option("--max-snapshot-age", metavar="AGE", help="Instead of the table's, such as '5 days'.")
@click.option("--min-snapshots-to-keep", type=int, metavar="N", help="Instead of the table's.")
@click.option("--max-snapshots", type=int, metavar="N", help="Instead of the table's.")
def expire(table: KnownTable, as_json: bool, **policy: Any) -> int:
    """Expire old snapshots and delete their files, by the table's policy."""
    from streaming_sink.removal.cleaning import expire_snapshots

    return _say_deletions(expire_snapshots(table, **policy), as_json)


@click.command()
@of_a_table
@_dry_run
@click.option("--older-than", default="3 days", show_default=True, metavar="AGE", help="24 hours at least.")
def orphans(table: KnownTable, as_json: bool, dry_run: bool, older_than: str) -> int:
    """Delete old files of this sink that nothing refers to."""
    from streaming_sink.removal.cleaning import remove_orphan_files

    return _say_deletions(remove_orphan_files(table, older_than=older_than, dry_run=dry_run), as_json)


@click.command()
@of_a_table
def accept(table: KnownTable, as_json: bool) -> int:
    """Take a table of a catalog as it is, after it was replaced.

    Its streams go on after their last batches, though these may not be in it.
    """
    from streaming_sink.options.values.tables import CatalogTable

    if not isinstance(table, CatalogTable):
        raise ValueError(f"only a table in a catalog can have been replaced: {table.location}")
    version = table.accept()
    text = f"{table.location} is taken as it is, by version {version}; restart its streams"
    return say_either(as_json, {"table": table.location, "version": version}, text)


def _say_deletions(report: Any, as_json: bool) -> int:
    if as_json:
        say_json(
            {
                "dry_run": report.dry_run,
                "expired_snapshots": report.expired_snapshots,
                "waiting_expiries": report.waiting,
                "bytes": report.bytes,
                "files": report.files,
            }
        )
    else:
        say(str(report))
    return DONE


for _each in (
    *inspecting.COMMANDS,
    doctor,
    history,
    expire,
    orphans,
    accept,
    *earlier.COMMANDS,
    *mirroring.COMMANDS,
    *clustering.COMMANDS,
    *quarantine.COMMANDS,
    *keys.COMMANDS,
    *workers.COMMANDS,
    *purging.COMMANDS,
):
    _commands.add_command(refuse_in_options(_each))
