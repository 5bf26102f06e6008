"""What a process on Spark Connect does, a step after another: text for `python -c`, which prints what it
finds. `test_connect.py` says what that must be.
"""

from __future__ import annotations

PROGRAM = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession
from streaming_sink import Checks, IcebergSink, SchemaContract, history, parse_json
from tests.sinks import flat_sink
from pyiceberg.table import StaticTable
from tests.spark import streams
from tests.spark.streams import SMALL, add_files, forget_last_commit, head_of, ids_of, metadata_file
folder = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
found = {}

def told(name, **facts):
    found[name] = facts

def run(start):
    # Spark gives the worker of a function ten seconds to start, whatever else the machine does; then the
    # query was not started at all.
    for _ in range(5):
        try:
            query = start()
            break
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    else:
        raise RuntimeError("Spark's worker did not start within ten seconds, five times")
    query.awaitTermination()
    return query

def drain(*arguments):
    return run(lambda: streams.start(*arguments))

def ids(location):
    return list(ids_of(location).elements())

def rows_of(location):
    return StaticTable.from_metadata(metadata_file(location)).scan().to_arrow().to_pylist()

def state(location, app_id):
    return head_of(location).properties["streaming-sink.txn." + app_id]

def failure(sink, checkpoint, source="one", session=spark):
    try:
        drain(session, folder / source, sink, str(folder / checkpoint))
    except Exception as error:
        return str(error)
    return "no failure"

location, checkpoint = str(folder / "table"), str(folder / "checkpoint")
sink = flat_sink(location, partition_by=["p"], sizing=SMALL, fill_policy="always", fill="inline")
add_files(folder / "source", range(3))
query = drain(spark, folder / "source", sink, checkpoint)
told("normal", release=pyspark.__version__, query=query.id, run=query.runId, ids=ids(location),
     state=state(location, query.id))
add_files(folder / "source", [3])
drain(spark, folder / "source", sink, checkpoint)
told("restarted", ids=ids(location), state=state(location, query.id))
version = head_of(location).number
(folder / "table" / "metadata" / "version-hint.text").unlink()
forget_last_commit(checkpoint)
drain(spark, folder / "source", IcebergSink(location), checkpoint)
told("replayed", ids=ids(location), grown=head_of(location).number - version,
     hint=(folder / "table" / "metadata" / "version-hint.text").read_text() == str(version))
told("history", reports=[report.to_dict() for report in history(location)], client=len(sink.reports))

named = str(folder / "named")
add_files(folder / "one", [0])
add_files(folder / "others", [7])
drain(spark, folder / "one", IcebergSink(named, app_id="app"), str(folder / "named-checkpoint"))
told("fresh", message=failure(IcebergSink(named, app_id="app"), "fresh", "others"), ids=ids(named))
forget_last_commit(str(folder / "named-checkpoint"))
drain(spark, folder / "one", IcebergSink(named, app_id="app"), str(folder / "named-checkpoint"))
told("named, replayed", ids=ids(named), number=head_of(named).number)
try:
    IcebergSink(named, app_id="app")(spark.range(3), 0)
    told("backfill of its name", message="it was skipped", ids=ids(named))
except Exception as error:
    told("backfill of its name", message=str(error), ids=ids(named))

# A query costs a process of Spark's, with all imports, so what can has one batch together: what each has come
# to is in a file.
def told_by(name):
    return json.loads((folder / name).read_text())

def tell(name, **attempts):
    for each, attempt in attempts.items():
        try:
            attempt()
            attempts[each] = "no failure"
        except Exception as error:
            attempts[each] = str(error)
    (folder / name).write_text(json.dumps(attempts))

def in_threads(batch, number):
    # Made here, in the worker, and called from threads of the function's own.
    halves = {"p = 'p0'": "some", "p <> 'p0'": "rest"}
    with ThreadPoolExecutor(2) as pool:
        sinks = [IcebergSink(str(folder / "threads"), app_id=app) for app in halves.values()]
        for done in [pool.submit(s, batch.where(half), number) for s, half in zip(sinks, halves)]:
            done.result()

def twice(batch, number):
    # Made here, in the worker: two sinks under one name.
    for part in ("p = 'p0'", "p <> 'p0'"):
        IcebergSink(location + "-twice")(batch.where(part), number)

checked, fails = str(folder / "checked"), {"id % 10 <> 3": "quarantine", "id % 10 <> 4": "drop"}
refused = IcebergSink(checked + "-not", checks=Checks({**fails, "nope > 1": "drop"}))
quarantining = IcebergSink(checked, checks=Checks(fails))

def all_of_these(batch, number):
    tell("told", threads=lambda: in_threads(batch, number), twice=lambda: twice(batch, number),
         refused=lambda: refused(batch, number), checked=lambda: quarantining(batch, number))

assert failure(all_of_these, "told-checkpoint") == "no failure"
told("threads", message=told_by("told")["threads"], ids=ids(str(folder / "threads")))
told("twice", message=told_by("told")["twice"])
told("no condition", message=told_by("told")["refused"], ids=ids(checked + "-not"))
told("checked", message=told_by("told")["checked"],
     ids=ids(checked), failed=history(checked)[0].failed,
     quarantined=[json.loads(row["row"])["id"] for row in rows_of(checked + "__quarantine")])

contract = SchemaContract(new_columns="add", new_fields="add", widening="widen", mismatch="rescue")
parsing = IcebergSink(str(folder / "json"), contract=contract)

def parsed(batch, number):
    with parse_json(batch, "value", parsing) as found:
        parsing(found.rows, number)

(folder / "texts").mkdir()
lines = ['{"id": 1, "user": {"n": 1}}', '{"id": 2, "user": {"N": 2, "tag": "t"}}\\nnot json']
for number, text in enumerate(lines):
    (folder / "texts" / f"{number}.txt").write_text(text)
    os.utime(folder / "texts" / f"{number}.txt", (1_700_000_000 + number, 1_700_000_000 + number))
texts = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "texts"))
texts = texts.writeStream.foreachBatch(parsed).option("checkpointLocation", str(folder / "json-checkpoint"))
run(texts.trigger(availableNow=True).start)
told("parsed", rows=rows_of(str(folder / "json")),
     why=[report.why for report in history(str(folder / "json"))])

rate = spark.readStream.format("rate").load().writeStream.format("noop")
other = rate.option("checkpointLocation", str(folder / "other")).start()
try:
    IcebergSink(str(folder / "client"))(spark.range(3), 0)
    told("client", message="it passed for a batch of the other query")
except ValueError as error:
    told("client", message=str(error))
backfill = str(folder / "backfill")
for _ in range(2):
    IcebergSink(backfill, app_id="backfill")(spark.range(3), 0)
told("backfill", ids=ids(backfill))
several, alone = str(folder / "several, apart"), str(folder / "several")
apart = [spark.cloneSession() for _ in range(2)]
first = failure(IcebergSink(several, app_id="app"), "several-2", session=apart[0])

def beside_the_other(batch, number):
    places = {"alone": alone, "together": several}
    sinks = {name: IcebergSink(place, app_id="app") for name, place in places.items()}
    tell("told, several", **{name: lambda sink=sink: sink(batch, number) for name, sink in sinks.items()})

assert failure(beside_the_other, "several-3", "others") == "no failure"
told("several", message=told_by("told, several")["alone"], ids=ids(alone))
told("several, apart", first=first, together=told_by("told, several")["together"],
     fresh=failure(IcebergSink(several, app_id="app"), "several-4", "others", session=apart[1]),
     ids=ids(several))
other.stop()
print("FOUND", json.dumps(found))
for session in apart:
    session.client.close()  # else PySpark 4.1 asks the server that has gone for minutes
spark.stop()
"""
