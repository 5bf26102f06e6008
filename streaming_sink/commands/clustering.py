"""The commands `cluster`, `plans` and `cancel`. Only `cluster` starts Spark, and only where there is work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from planners.clustering.strategies import BUILT_IN
from streaming_sink.commands.arguments import F, a_size, key_values, of_a_table
from streaming_sink.commands.pass_flags import NUMBERS, SIZES, flag
from streaming_sink.commands.terminal import say_either

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable


def _with_options_of_a_pass(command: F) -> F:
    for name in reversed(NUMBERS):
        command = click.option(flag(name), metavar="NUMBER", type=int)(command)
    for name in reversed(SIZES):
        command = click.option(flag(name), callback=a_size, metavar="SIZE", help='Such as "512MiB".')(command)
    return command


@click.command()
@of_a_table
@click.option("--sort-by", metavar="COLUMN,...", help='Such as "session_id,time desc nulls last".')
@click.option("--strategy", metavar="NAME", help=f"One of {', '.join(BUILT_IN)}.")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_values,
    help="Of the strategy; may be repeated.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="NAME",
    help="Which files: by_size (default), by_overlap, all, or recent_partitions,look_back=3; of several, a"
    " file has to pass all.",
)
@click.option(
    "--where",
    metavar="FIELD=VALUE,...",
    help='Only these partitions, as their folders are called: "region=eu,region=us,day=2026-01-01".',
)
@_with_options_of_a_pass
@click.option("--checksum", is_flag=True, help="Read the written files back, and compare the rows.")
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@click.option("--schedule-only", is_flag=True, help="Save the plan, for --pending elsewhere.")
@click.option("--pending", is_flag=True, help="Execute the saved plans, and make none.")
@click.option(
    "--wait",
    metavar="TIME",
    help='With --pending: wait for so long, such as "10 minutes", while other executors have plans, and take'
    " over those without a heartbeat for 5 minutes.",
)
def cluster(
    table: KnownTable,
    as_json: bool,
    dry_run: bool,
    schedule_only: bool,
    pending: bool,
    wait: str | None,
    **given: Any,
) -> int:
    """Rewrite files so that rows queried together share them. See docs/clustering.md."""
    from streaming_sink.commands.clustering_pass import Call

    if dry_run + schedule_only + pending > 1:
        raise click.UsageError("--dry-run, --schedule-only and --pending exclude each other")
    if wait is not None and not pending:
        raise click.UsageError("--wait waits for other executors; give it with --pending")
    call = Call(table, as_json)
    options = call.pass_options(given)
    if pending:
        code = call.execute_pending(dict(options), wait)
    elif dry_run:
        code = call.only_plan(options)
    else:
        code = call.schedule(options, execute=not schedule_only)
    call.say_all()
    return code


@click.command()
@of_a_table
def plans(table: KnownTable, as_json: bool) -> int:
    """List clustering plans: pending ones, and the last week's. Oldest first."""
    from streaming_sink.commands.rendering import say_plans
    from streaming_sink.reading.plans import list_plans
    from timeline.clock import SYSTEM

    listed = list_plans(table.open(), SYSTEM.now_ms())
    return say_either(as_json, listed, lambda: say_plans(listed))


@click.command()
@partial(of_a_table, further="PLAN")
def cancel(table: KnownTable, as_json: bool, plan: str) -> int:
    """Withdraw a pending clustering plan, and free its files. PLAN is its id, as `plans` prints it."""
    from streaming_sink import clustering

    if not clustering.cancel(table, plan):
        raise ValueError(f"no plan {plan} is pending; the command `plans` shows those that are")
    return say_either(as_json, {"plan_id": plan, "cancelled": True}, f"cancelled {plan}; its files are free")


COMMANDS = (cluster, plans, cancel)
