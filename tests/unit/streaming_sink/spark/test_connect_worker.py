"""Which query a Connect worker serves. Stand-ins for its main function and for sessions: real ones, of each
release of PySpark, are in tests/spark.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from streaming_sink.spark.caller import QueryRun, identify, is_connect_worker, query_of_worker


class _Session:
    """What is asked of a Connect session."""

    def __init__(self, *active):
        self.streams = SimpleNamespace(active=[])
        for each in active:
            self.start(each)

    def start(self, query):
        self.streams.active.append(SimpleNamespace(id=query, runId=f"run of {query}"))


_Session.__module__ = "pyspark.sql.connect.session"

_MAIN = """
def main(spark_connect_session, function):
    return function()
"""


@pytest.fixture
def serve(monkeypatch):
    """Return what runs a function as a worker that a session has started does."""
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    query_of_worker.cache_clear()
    names = {}
    exec(compile(_MAIN, "/zip/pyspark/sql/connect/streaming/worker/foreach_batch_worker.py", "exec"), names)
    yield names["main"]
    query_of_worker.cache_clear()


def test_only_the_servers_process_is_a_worker(serve, monkeypatch):
    assert is_connect_worker()
    monkeypatch.delenv("SPARK_CONNECT_LOCAL_URL")
    assert not is_connect_worker()


@pytest.mark.parametrize("app_id", [None, "events"])
def test_the_query_is_the_only_one_of_the_session_that_started_it_whatever_the_batchs_own_knows(
    serve, app_id
):
    """On PySpark 4.3 the batch's is a clone, which knows of none: so numbers alone counted."""
    run = serve(_Session("query"), lambda: identify(_Session(), app_id, "minted"))
    assert run == QueryRun(app_id or "query", "query", "run of query")


def test_a_thread_of_the_users_function_is_told_the_same(serve):
    with ThreadPoolExecutor(1) as pool:
        assert serve(_Session("query"), lambda: pool.submit(query_of_worker).result())[0] == "query"


def test_the_query_stays_the_workers_when_another_one_starts(serve):
    session = _Session("query")
    known = serve(session, query_of_worker)
    session.start("other")
    assert serve(session, query_of_worker) == known


@pytest.mark.parametrize("active", [(), ("a", "b")])
@pytest.mark.parametrize("app_id", [None, "events"])
def test_without_a_single_active_query_the_batch_is_refused_also_under_a_name(serve, active, app_id):
    """Under a name numbers alone counted, and a fresh checkpoint's rows passed for a replay."""
    with pytest.raises(ValueError, match=rf"{len(active)} queries are active.*spark\.cloneSession\(\)"):
        serve(_Session(*active), lambda: identify(_Session(*active), app_id, "minted"))


@pytest.mark.usefixtures("serve")
def test_a_worker_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"cannot be determined with PySpark .*: use a tested version"):
        identify(_Session("query"), "events", "minted")
