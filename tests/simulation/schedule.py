"""Draws a schedule from its seed: which actors, which faults, how fast everyone is (a swarm of subsets)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from unittest import mock

from tests.simulation import (
    cleaners,
    clusterers,
    deltas,
    droppers,
    fillers,
    ingesters,
    key_files,
    key_runs,
    keyed,
    mirrors,
    naming,
    others,
    outboxes,
    repartitioners,
    writers,
)
from tests.simulation.acting import Body
from tests.simulation.catalogs.judge import CatalogOracle
from tests.simulation.catalogs.key_judge import KeyedCatalogOracle
from tests.simulation.catalogs.keyed import KeyedCatalogWorld
from tests.simulation.catalogs.schedule import CatalogWorld
from tests.simulation.followers import Log
from tests.simulation.purgers import Purgers
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import BY_P, PARTITIONS, SCHEMA, Query, Report, Simulation, small_constants
from tests.simulation.store import Weather
from timeline import properties
from timeline.errors import TableDroppedError
from timeline.retention import mirrored
from timeline.table import Table
from timeline.versions.keys import TABLE_SCOPE

_FAULTS = (
    "lost_request", "lost_reply", "late", "duplicate", "exists_own", "conflict", "refused", "stall"
)  # fmt: skip


STORMY = 5
"""Every so many seeds one is stormy: all that makes forks, and many who can lose by one."""


FILLING = 4
"""In every so many seeds fills run beside the streams: a class of its own, so that the other seeds stay what
they are.
"""


CHANGING = 4
"""In every so many seeds two writers make row deltas beside the streams, and in half of those passes of fills
fold their deletes: a class of its own, as `FILLING`.
"""


OUTBOXES = 1_000_000
"""From this seed on schedules are of two tables, with an outbox between them, and of nothing else."""


KEYS = 2_000_000
"""From this seed on schedules are of one table with a key, whose rows are changed by it."""


INGESTION = 3_000_000
"""From this seed on schedules are of a buffer zone, whose files land in one table."""


AUDITS = 4_000_000
"""From this seed on schedules are of a buffer zone whose work items are staged and audited."""


CATALOGS = 5_000_000
"""From this seed on schedules are of one table in a catalog, which other engines write to as well."""


KEYED_CATALOGS = 6_000_000
"""From this seed on schedules are of one table with a key in a catalog, which other engines write to."""


MIRRORS = 7_000_000
"""From this seed on schedules are of one table, which has a mirror in a catalog."""


def run(seed: int, traced: bool = False) -> Report:
    """Run the schedule of a seed to its end, or to the first violation."""
    with small_constants(seed):
        if seed >= MIRRORS:
            return _run_mirrored(Simulation(seed, traced))
        if seed >= KEYED_CATALOGS:
            return _run_keyed_in_a_catalog(Simulation(seed, traced, KeyedCatalogOracle))
        if seed >= CATALOGS:
            return Simulation(seed, traced, CatalogOracle).run(*_in_a_catalog())
        sim = Simulation(seed, traced)
        if seed < OUTBOXES:
            return sim.run(_arrange, _finish)
        if seed < KEYS:
            return sim.run(*_two_tables())
        if seed >= INGESTION:
            with ingesters.without_threads():
                return sim.run(*_ingestion(audited=seed >= AUDITS))
        world = keyed.Keyed(sim)
        with ExitStack() as stack:
            stack.enter_context(key_files.read_and_written(sim, world.judge.changes.__getitem__))
            log, purging = _purging_and_followed(sim, world)
            for each in filter(None, (log, purging)):
                stack.enter_context(each.read_and_written())
            return sim.run(
                lambda sim: _arrange_keyed(sim, world, log, purging, stack),
                lambda sim: _finish_keyed(sim, world, log, purging),
            )


def _two_tables() -> tuple[Callable[[Simulation], None], Callable[[Simulation], None]]:
    made: list[outboxes.Outbox] = []

    def arrange(sim: Simulation) -> None:
        random = sim.random
        sim.skewed = random.random() < 0.5
        outbox = outboxes.Outbox(sim)
        made.append(outbox)
        outbox.create({properties.MAX_SNAPSHOT_AGE_MS: random.choice(["1000", "86400000"])})
        sim.weather = _storm(random) if sim.seed % STORMY == 0 else _weather(random)
        outboxes.arrange(sim, outbox, _starter(sim), random.choice([1.0, 5.0, 60.0]))

    def finish(sim: Simulation) -> None:
        _finish(sim)
        made[0].finish()

    return arrange, finish


def _in_a_catalog() -> tuple[Callable[[Simulation], None], Callable[[Simulation], None]]:
    made: list[CatalogWorld] = []

    def arrange(sim: Simulation) -> None:
        sim.skewed = sim.random.random() < 0.5
        made.append(CatalogWorld(sim))
        weather = _storm(sim.random) if sim.seed % STORMY == 0 else _weather(sim.random)
        made[0].arrange(_starter(sim), weather)

    return arrange, lambda sim: made[0].finish()


def _run_keyed_in_a_catalog(sim: Simulation) -> Report:
    sim.skewed = sim.random.random() < 0.5
    world = KeyedCatalogWorld(sim, keyed.Keyed(sim))
    weather = _storm(sim.random) if sim.seed % STORMY == 0 else _weather(sim.random)
    with ExitStack() as stack:
        stack.enter_context(key_files.read_and_written(sim, world.keyed.judge.changes.__getitem__))
        if world.purging is not None:
            stack.enter_context(world.purging.read_and_written())
        return sim.run(lambda sim: world.arrange(_starter(sim), weather), lambda sim: world.finish())


def _run_mirrored(sim: Simulation) -> Report:
    mirrored_table = mirrors.Mirrors(sim)

    def arrange(sim: Simulation) -> None:
        _arrange(sim, mirrored_table.start)

    def finish(sim: Simulation) -> None:
        _finish(sim)
        mirrored_table.finish()

    with mock.patch.object(mirrored, "HELD_MS", mirrors.HELD_MS):
        return sim.run(arrange, finish)


def _ingestion(*, audited: bool) -> tuple[Callable[[Simulation], None], Callable[[Simulation], None]]:
    made: list[ingesters.Ingestion] = []

    def arrange(sim: Simulation) -> None:
        random, stormy = sim.random, sim.seed % STORMY == 0
        sim.skewed = random.random() < 0.5
        store, environment = sim.unfailing()
        given = {"environment": environment, "store_is_checked": True}
        Table.create(store, SCHEMA, BY_P, table_properties=_table_properties(random), **given)
        sim.weather = _storm(random) if stormy else _weather(random)
        world = ingesters.Ingestion(sim, audited)
        made.append(world)
        start, deadline = _starter(sim), random.choice([1.0, 5.0, 60.0])
        for number in range(random.choice([1, 2])):
            start(f"producer{number}", world.produce(random.randrange(2, 6)))
        for number in range(random.choice([1, 2, 2])):
            start(f"planner{number}", world.plan(random.randrange(4, 12)))
        for number in range(random.choice([1, 2, 3])):
            start(f"worker{number}", world.work(random.randrange(4, 12), deadline))
        if not audited and Random(f"copy {sim.seed}").random() < 0.2:
            start("copy", world.copy)
        if audited and random.random() < 0.7:
            for number in range(random.choice([1, 2])):
                start(f"operator{number}", world.decide(random.randrange(4, 30)))
        if random.random() < 0.4:
            start("appender", writers.append_at_times(sim, "plain", random.randrange(2, 6), True, deadline))
        if random.random() < 0.4:
            start("expirer", cleaners.expire(sim, random.randrange(2, 6)))
        if world.references:
            start("filler", fillers.fill_beside(sim, random.randrange(10, 30), deadline))
            start("expirer2", cleaners.expire(sim, random.randrange(4, 10)))
        if random.random() < (0.6 if audited else 0.3):
            times = random.randrange(1, 4)
            start("cleaner", cleaners.remove_orphans(sim, 4 * times if audited else times))

    def finish(sim: Simulation) -> None:
        _finish(sim)
        made[0].finish()

    return arrange, finish


def _purging_and_followed(sim: Simulation, world: keyed.Keyed) -> tuple[Log | None, Purgers | None]:
    """Return the change log and the purges of a schedule, if it has any. They are drawn apart, so that
    schedules without them are as they were.
    """
    drawn = Random(f"purge {sim.seed}")
    log = Log(sim, world.judge) if drawn.random() < 0.2 else None
    purging = Purgers(sim, world.judge.purged, log) if drawn.random() < (0.5 if log else 0.15) else None
    return log, purging


def _arrange_keyed(
    sim: Simulation, world: keyed.Keyed, log: Log | None, purging: Purgers | None, stack: ExitStack
) -> None:
    random, stormy = sim.random, sim.seed % STORMY == 0
    sim.skewed = random.random() < 0.5
    main = random.choice(keyed.KEYS)
    if sim.seed >= key_runs.INDEXED:
        main = replace(main, key_index="index")
    sim.repartitioning = main.key_scope == TABLE_SCOPE and random.random() < 0.15
    world.create(_table_properties(random), main if random.random() < 0.7 else None)
    sim.weather = _storm(random) if stormy else _weather(random)
    deadline = random.choice([1.0, 5.0, 60.0, 600.0])
    start = _starter(sim)
    keyed.arrange(sim, world, main, start, deadline)
    _start_others(sim, start, deadline, deltas.fold_deletes)
    if main.key_index == "index":
        index = key_runs.Runs(sim, main)
        stack.enter_context(index.small_and_held())
        index.arrange(start)
    if log is not None:
        log.create(_table_properties(random))
        for number in range(random.choice([1, 2])):
            start(f"follower{number}", log.follow(random.randrange(3, 10)))
    if purging is not None:
        sim.bounds = world.bounds
        for number in range(random.choice([1, 1, 2])):
            start(f"purger{number}", purging.purge(random.randrange(1, 4), world.keys))


def _finish_keyed(sim: Simulation, world: keyed.Keyed, log: Log | None, purging: Purgers | None) -> None:
    _finish(sim)
    if log is not None:
        sim.scheduler.start("last follower", log.follow_in_the_end())
    if purging is not None:
        wanted = {"id": sim.random.choice(world.keys()), "p": sim.random.randrange(PARTITIONS)}
        sim.scheduler.start("last purger", purging.purge_in_the_end(wanted), 1000.0)


def _arrange(sim: Simulation, start_more: Callable[[Callable[..., None]], None] = lambda _: None) -> None:
    random, stormy = sim.random, sim.seed % STORMY == 0
    sim.skewed = random.random() < 0.5
    # Drawn apart, so that schedules without it are as they were.
    sim.evolving = Random(f"evolve {sim.seed}").random() < 0.2
    sim.repartitioning = not sim.evolving and Random(f"repartition {sim.seed}").random() < 0.2
    store, environment = sim.unfailing()
    Table.create(
        store,
        SCHEMA,
        BY_P,
        table_properties=_table_properties(random),
        environment=environment,
        store_is_checked=True,
    )
    sim.weather = _storm(random) if stormy else _weather(random)
    deadline = random.choice([1.0, 5.0, 60.0, 600.0])
    fills = random.random() < 0.7
    start = _starter(sim)
    if _dropping(sim):
        start = _dropped_under(sim, start)
    for number in range(random.choice([1, 2, 2, 3])):
        app = f"app{number}"
        query = Query(app, f"query{number}", random.randrange(2, 7))
        body = writers.stream(sim, query, fills, deadline)
        start(f"stream{number}", body)
        if random.random() < 0.35:
            start(f"twin{number}", body, random.expovariate(1 / 3))
        if random.random() < 0.2:
            taken = query.query if random.random() < 0.5 else None
            other = Query(app, f"fresh{number}", random.randrange(2, 5), taken)
            if taken:
                sim.oracle.takeovers.add((app, other.query, taken))
            start(f"fresh{number}", writers.stream(sim, other, fills, deadline), random.expovariate(1 / 3))
    for number in range(2 if stormy else random.choice([0, 0, 0, 1, 1])):
        start(
            f"appender{number}",
            writers.append_at_times(sim, "plain", random.randrange(2, 6), fills, deadline),
        )
    _start_others(sim, start, deadline, deltas.change_rows)
    for number in range(3 if naming.has_names(sim.seed) else 0):
        start(f"namer{number}", naming.name(sim, random.randrange(3, 10)))
    start_more(start)


def _dropping(sim: Simulation) -> bool:
    """Return whether the table is dropped in a schedule. Drawn apart, so that the others are as they were."""
    plain = sim.seed < OUTBOXES and not (sim.evolving or sim.repartitioning or sim.seed % CHANGING == 2)
    return plain and Random(f"drop {sim.seed}").random() < 0.15


def _dropped_under(sim: Simulation, start: Callable[..., None]) -> Callable[..., None]:
    """Start who drops the table, and return what starts those that it is dropped under."""
    drawn = Random(f"droppers {sim.seed}")
    for number in range(drawn.choice([1, 2])):
        start(f"dropper{number}", droppers.drop(sim, drawn.randrange(1, 3), _table_properties(drawn)))

    def starting(name: str, body: Body, delay: float = 0.0) -> None:
        if name not in ("tagger", "deleter", "operator", "undoer"):  # other engines, which know of no drop
            start(name, droppers.outliving(sim, body), delay)

    return starting


def _start_others(
    sim: Simulation,
    start: Callable[..., None],
    deadline: float,
    changer: Callable[[Simulation, int, float], Body],
) -> None:
    """Start who rewrites, deletes and reads."""
    random, stormy = sim.random, sim.seed % STORMY == 0
    if random.random() < 0.3:
        start("clusterer", writers.cluster(sim, random.randrange(2, 5), deadline))
    planned = random.choice([0, 0, 2, 3] if stormy else [0, 0, 1, 2])
    for number in range(max(planned, int(clusterers.has_planner(sim.seed)))):
        start(f"clusterer{number}", clusterers.cluster_by_plans(sim, random.randrange(2, 5), deadline))
    if planned and random.random() < 0.3:
        start("vandal", others.spoil_the_timeline(sim, random.randrange(1, 4)))
    if sim.seed % FILLING == 1:
        for number in range(2):
            start(f"filler{number}", fillers.fill_beside(sim, random.randrange(4, 10), deadline))
    if random.random() < 0.3:
        start("owner", writers.set_properties(sim, random.randrange(1, 5)))
    if stormy or random.random() < 0.4:
        start("expirer", cleaners.expire(sim, random.randrange(2, 6)))
    if stormy or random.random() < 0.4:
        for number in range(2 if stormy else random.choice([1, 1, 2])):
            start(f"cleaner{number}", cleaners.remove_orphans(sim, random.randrange(1, 4)))
    if sim.seed % CHANGING == 2:
        for number in range(2):
            start(f"changer{number}", changer(sim, random.randrange(3, 9), deadline))
        if random.random() < 0.5:
            start("filler", fillers.fill_beside(sim, random.randrange(4, 10), deadline))
    if sim.evolving:
        for number in range(2):
            start(f"evolver{number}", writers.evolve(sim, random.randrange(1, 4)))
    # Drawn apart, so that schedules without it are as they were; and apart from what changes rows or keys.
    plain = sim.seed < OUTBOXES and not (sim.evolving or sim.repartitioning or sim.seed % CHANGING == 2)
    if plain and Random(f"roll back {sim.seed}").random() < 0.15:
        start("undoer", others.roll_back(sim, 4))
    if sim.repartitioning:
        for number in range(2):
            start(f"repartitioner{number}", repartitioners.repartition(sim, random.randrange(2, 5)))
    if random.random() < 0.25:
        start("tagger", others.tag(sim))
    if random.random() < 0.15:
        start("deleter", others.delete_rows(sim, random.randrange(1, 3)))
    if random.random() < 0.07 and sim.seed < MIRRORS:
        start("operator", others.make_again(sim))
    for number in range(3 if stormy else random.choice([0, 1, 2])):
        start(f"reader{number}", others.read(sim, random.randrange(2, 7)))


def _table_properties(random: Random) -> dict[str, str]:
    return {
        properties.MANIFEST_MIN_MERGE_COUNT: random.choice(["2", "4", "32"]),
        properties.MAX_SNAPSHOTS: random.choice(["4", "2000"]),
        properties.MIN_SNAPSHOTS_TO_KEEP: "1",
        properties.MAX_SNAPSHOT_AGE_MS: random.choice(["1000", "86400000"]),
        properties.DELETION_GRACE_MS: random.choice(["0", "1000", "10000"]),
        properties.RESERVATION_TIMEOUT_MS: random.choice(["1000", "10000", "86400000"]),
    }


def _starter(sim: Simulation) -> Callable[..., None]:
    """Return what starts an actor, at a pace of its own, who may crash and start anew."""
    random = sim.random
    crashes = random.choice([0.0, 0.0, 0.01, 0.03])

    def start(name: str, body: Callable[[Actor], None], delay: float = 0.0) -> None:
        actor = sim.scheduler.start(name, body, delay)
        if paces:
            sim.pace(actor)
            for _ in range(2):
                sim.scheduler.after(random.uniform(0, 20), lambda: sim.pace(actor))
        if random.random() < crashes * 20:
            sim.scheduler.after(delay + random.expovariate(1 / 3), lambda: crash(actor, name, body))

    def crash(actor: Actor, name: str, body: Callable[[Actor], None]) -> None:
        if not actor.ended:
            sim.meet("crash")
            sim.tell(actor.name, "CRASH")
            actor.kill()
            start(f"{name}'", body, random.expovariate(1.0))

    paces = random.random() < 0.4
    return start


def _weather(random: Random) -> Weather:
    weather = Weather(timeout=random.choice([0.2, 1.0, 5.0]), stall_seconds=random.choice([3.0, 10.0, 30.0]))
    for fault in _FAULTS:
        if random.random() < 0.5:
            setattr(weather, fault, random.choice([0.03, 0.1, 0.25]))
    return weather


def _storm(random: Random) -> Weather:
    return Weather(
        timeout=random.choice([0.05, 0.2, 1.0]),
        stall_seconds=random.choice([1.0, 3.0]),
        lost_reply=0.25,
        late=0.25,
        duplicate=0.1,
        stall=0.25,
        lost_request=0.1,
    )


def _finish(sim: Simulation) -> None:
    """When all is quiet, a last reader sees what the oracle knows."""
    store, environment = sim.unfailing()
    try:
        table = Table.open(store, environment)
    except TableDroppedError:
        if not sim.oracle.head.is_dropped:
            raise ViolationError("in the end a table passes for dropped (R17)") from None
        last = droppers.make_in_the_end(sim, _table_properties(Random(sim.seed)))
        sim.scheduler.start("last maker", last)
        return
    if table.head.version.commit_id != sim.oracle.head.commit_id:
        raise ViolationError("in the end the head is not the last commit of the lineage")
    if sim.oracle.plans.completed:
        clusterers.end_what_is_pending(sim)
