"""Who is calling, told from what Spark says. Stand-ins for sessions: real ones are in tests/spark."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import uuid4

import pytest

from streaming_sink.spark.batch_claims import claim_batch
from streaming_sink.spark.caller import OUTSIDE, QueryRun, identify, mint_run_id
from streaming_sink.spark.jobs import described, is_connect, parallelism

QUERY, RUN = "sql.streaming.queryId", "spark.jobGroup.id"


class _Context:
    defaultParallelism = 3  # noqa: N815

    def __init__(self, **properties):
        self.properties = properties

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)

    def setLocalProperty(self, name, value):  # noqa: N802
        self.properties[name] = value


class _Queries(dict):
    """What Spark's shared state knows of active queries: their runs, by id."""

    def isEmpty(self):  # noqa: N802
        return not self


class _Classic:
    def __init__(self, **properties):
        self.sparkContext = _Context(**properties)
        util = SimpleNamespace(UUID=SimpleNamespace(fromString=str))
        self.sparkContext._jvm = SimpleNamespace(java=SimpleNamespace(util=util))
        self.active = _Queries()
        state = SimpleNamespace(activeStreamingQueries=lambda: self.active)
        session_id = str(uuid4())
        self._jsparkSession = SimpleNamespace(sharedState=lambda: state, sessionUUID=lambda: session_id)

    def starts(self, query, run, stream=None):
        """Have a query active, whose batches come in the session `stream`."""
        ids = {name: SimpleNamespace(toString=lambda it=it: it) for name, it in (("id", query), ("run", run))}
        own = (stream or _Classic())._jsparkSession
        self.active[query] = SimpleNamespace(
            id=lambda: ids["id"],
            runId=lambda: ids["run"],
            sparkSessionForStream=lambda: SimpleNamespace(equals=lambda other: other is own),
        )


class _Connect:
    """What `identify` and its neighbours ask of a Connect session. Tags are kept as PySpark's client does."""

    def __init__(self, conf=None):
        self.conf = SimpleNamespace(get=lambda name, default=None: (conf or {}).get(name, default))
        self.of_thread = threading.local()

    def getTags(self):  # noqa: N802
        if not hasattr(self.of_thread, "tags"):
            self.of_thread.tags = set()
        return self.of_thread.tags

    def clearTags(self):  # noqa: N802
        self.of_thread.tags = set()

    def addTag(self, tag):  # noqa: N802
        assert "," not in tag, "Spark refuses it"
        self.getTags().add(tag)

    def removeTag(self, tag):  # noqa: N802
        self.getTags().remove(tag)


_Connect.__module__ = "pyspark.sql.connect.session"


def test_on_classic_the_query_and_its_run_are_sparks_own_and_read_at_each_call():
    session = _Classic(**{QUERY: "query", RUN: "run-1"})
    known = identify(session, None, "minted")
    assert known == QueryRun("query", "query", "run-1")
    session.sparkContext.properties[RUN] = "run-2"
    assert identify(session, None, "minted") == QueryRun("query", "query", "run-2")


def test_a_name_that_is_given_wins_over_the_querys_id():
    session = _Classic(**{QUERY: "query", RUN: "run"})
    assert identify(session, "events", "minted") == QueryRun("events", "query", "run")


def test_outside_a_query_a_name_is_needed_and_the_run_is_the_sink():
    with pytest.raises(ValueError, match=r'outside a streaming query.*app_id="backfill"'):
        identify(_Classic(), None, "minted")
    assert identify(_Classic(), "backfill", "minted") == QueryRun("backfill", OUTSIDE, "minted")


def test_a_batch_goes_by_its_own_session_whatever_thread_calls_with_it_also_when_its_query_has_ended():
    """A thread of a pool keeps the name of the query that it last worked for: another one's batches were
    skipped. The program's main thread has none, and passed for a backfill.
    """
    session = _Classic(**{QUERY: str(uuid4()), RUN: "a job group"})
    session.starts("query", "run", stream=session)
    session.starts("other", "run-2")
    assert identify(session, None, "minted") == QueryRun("query", "query", "run")
    session.sparkContext.properties.clear()
    session.active.clear()
    assert identify(session, "events", "minted") == QueryRun("events", "query", "run")


def test_rows_of_a_session_that_is_no_querys_are_refused_from_an_unnamed_thread_while_queries_are_active():
    """They may be a batch's: a fresh checkpoint would go unnoticed, its batches be skipped."""
    session = _Classic()
    session.starts("a query", "run")
    assert identify(session, "backfill", "minted").query_id == OUTSIDE
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(identify, session, "backfill", "minted")
        with pytest.raises(ValueError, match=r"inheritable_thread_target\(session\)\(function\)"):
            called.result()
        session.active.clear()
        assert pool.submit(identify, session, "backfill", "minted").result().app_id == "backfill"


def test_rows_made_anew_in_another_session_go_by_the_thread_whatever_job_group_the_users_function_sets():
    """Else two runs are one: a replay passes for a batch given twice, and neither can fence the other."""
    query, run = str(uuid4()), str(uuid4())
    session = _Classic(**{QUERY: query, RUN: "etl"})
    session.starts(query, run)
    assert identify(session, None, "minted") == QueryRun(query, query, run)


def test_a_thread_that_kept_the_name_of_a_query_that_has_ended_is_refused():
    """A backfill from a pool that had worked for a query landed under that query's name."""
    query = str(uuid4())
    with pytest.raises(ValueError, match=f"the streaming query {query}, which has ended"):
        identify(_Classic(**{QUERY: query, RUN: "etl"}), "backfill", "minted")


def test_a_client_of_connect_is_outside_of_its_queries():
    """It took the name of the only one, and that one's next batch was skipped."""
    with pytest.raises(ValueError, match="outside a streaming query"):
        identify(_Connect(), None, "minted")
    assert identify(_Connect(), "backfill", "minted") == QueryRun("backfill", OUTSIDE, "minted")


def test_a_batch_is_given_once_by_a_run_under_a_name_to_a_table():
    run, sink = QueryRun("events", "query", mint_run_id()), object()
    _lands("/lake/t", run, 7, sink)
    with pytest.raises(ValueError, match=r"batch 7 .* under the name 'events'.*app_id=\"events-2\""):
        _lands("/lake/t", run, 7, sink)
    _lands("/lake/other", run, 7, sink)
    _lands("/lake/t", QueryRun("events-2", "query", run.run_id), 7, sink)
    _lands("/lake/t", run, 8, sink)
    _lands("/lake/t", QueryRun("events", "query", mint_run_id()), 8, sink)


def test_a_batch_that_another_sink_is_about_to_land_is_given_too_and_is_free_again_when_it_fails():
    """Both would find that it is a replay, and the second one's rows be skipped."""
    run, sink, other = QueryRun("events", "query", mint_run_id()), object(), object()

    def fails_while_the_other_asks():
        with claim_batch("/lake/t", run, 7, object(), sink):
            with pytest.raises(ValueError, match="given to the table twice"):
                _lands("/lake/t", run, 7, other)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fails_while_the_other_asks()
    _lands("/lake/t", run, 7, other)
    with pytest.raises(ValueError, match="given to the table twice"):
        _lands("/lake/t", run, 7, sink)


def test_the_same_dataframe_is_given_again_by_a_function_that_tries_again():
    run, batch = QueryRun("events", "query", mint_run_id()), object()
    assert not _lands("/lake/t", run, 7, object(), batch)
    assert _lands("/lake/t", run, 7, object(), batch)
    with pytest.raises(ValueError, match="given to the table twice"):
        _lands("/lake/t", run, 7, object(), object())


def _lands(location, run, batch_id, sink, batch=None):
    with claim_batch(location, run, batch_id, batch or object(), sink) as again:
        return again


def test_run_ids_differ():
    assert mint_run_id() != mint_run_id()


def test_sessions_are_told_apart():
    assert is_connect(_Connect())
    assert not is_connect(_Classic())


def test_jobs_are_described_for_the_block_alone_also_when_it_fails():
    session = _Classic(**{"spark.job.description": "before"})
    seen = []

    def fail():
        seen.append(session.sparkContext.properties["spark.job.description"])
        raise KeyError

    with pytest.raises(KeyError), described(session, "a batch"):
        fail()
    assert seen == ["a batch"]
    assert session.sparkContext.properties["spark.job.description"] == "before"


def test_on_connect_jobs_are_tagged_for_the_block_alone_whatever_the_text():
    session = _Connect()
    seen = []

    def fail():
        seen.extend(session.getTags())
        raise KeyError

    session.addTag("the user's")
    with pytest.raises(KeyError), described(session, "a, b"):
        fail()
    assert sorted(seen) == ["a; b", "the user's"]
    assert session.getTags() == {"the user's"}


def test_threads_of_one_wrapped_function_are_tagged_apart_on_connect():
    """They begin with one set of tags. The second thread that left its block failed, after its batch was in
    the table.
    """
    session, inherited = _Connect(), {"the user's"}
    both_in, seen = threading.Barrier(2, timeout=60), []

    def run(text):
        session.of_thread.tags = inherited
        with described(session, text):
            both_in.wait()
            seen.append(sorted(session.getTags()))
            both_in.wait()
        return session.getTags()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, ["batch 0", "batch 0"])) == [inherited] * 2
        assert list(pool.map(run, ["batch 1", "batch 2"])) == [inherited] * 2
    batches = [["batch 0", "the user's"]] * 2 + [["batch 1", "the user's"], ["batch 2", "the user's"]]
    assert sorted(seen) == batches
    assert inherited == {"the user's"}


def test_parallelism_is_what_the_session_tells():
    assert parallelism(_Classic()) == 3
    assert (
        parallelism(_Connect(conf={"spark.default.parallelism": "7", "spark.sql.shuffle.partitions": "5"}))
        == 7
    )
    assert parallelism(_Connect(conf={"spark.sql.shuffle.partitions": "5"})) == 5
