"""Encrypting files while rewriting them: who can read what, what stays secret, and what is refused."""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners import All
from planners.model import Arrival
from streaming_sink import Clustering, clustering
from streaming_sink.clustering.options import pass_of
from streaming_sink.commands.cli import main
from streaming_sink.commands.terminal import CANNOT, DONE
from streaming_sink.table.parquet_properties import leaf_names
from streaming_sink.tasks.clustering.encrypting import Encrypt
from streaming_sink.tasks.encryption import Cipher, KeyNames
from streaming_sink.tasks.errors import KeysError
from streaming_sink.tasks.leaves import Leaf
from streaming_sink.writing.planning import Experience, plan_batch
from tests.sinks import flat_options
from tests.unit.streaming_sink.small_tables import (
    ROWS,
    SCHEMA,
    append,
    carry_out,
    drop_columns,
    entries,
    make_table,
    multiset,
    path_of,
    plan_of,
    read,
    rows_of,
)
from tests.unit.streaming_sink.vault import Vault
from timeline import names
from timeline.changes.changes import SetProperties
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING

LAKE, PII, NEW = "lake-master-key!", "pii--master-key!", "newer-master-key"
SORTED = {"sort_by": ["key"], "select": All()}


@pytest.fixture
def vault(tmp_path):
    return Vault(str(tmp_path / "keys.json")).put(lake=LAKE, pii=PII)


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path / "table")
    for batch in range(2):
        append(made, batch)
    return made


def _encrypt(**parameters):
    return {"strategy": "encrypt", "parameters": {"footer_key": "lake", **parameters}}


def _all_rows(table, vault):
    return multiset(
        read(path, decryption_properties=vault.decryption() if file.key_metadata else None)
        for path, file in entries(table).items()
    )


EVERYTHING = multiset(rows_of(batch) for batch in range(2))
COLUMN_KEYS = {"column_keys": "pii: note, place ; lake: id"}


@pytest.mark.parametrize("parameters", [{}, COLUMN_KEYS], ids=["all columns", "some columns"])
def test_the_rows_are_the_same_when_read_with_the_keys(table, vault, parameters):
    report = carry_out(table, plan_of(table, **_encrypt(**parameters)), keys=vault)
    assert [group.outcome for group in report.groups] == ["committed"] * 2, report.line()
    assert _all_rows(table, vault) == EVERYTHING


def test_without_keys_a_file_cannot_be_read(table, vault):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    for path in entries(table):
        assert path_of(path).read_bytes()[:4] == b"PARE"
        with pytest.raises(OSError, match="no decryption found"):
            read(path)


def test_with_a_wrong_key_a_file_cannot_be_read(table, vault):
    carry_out(table, plan_of(table, **_encrypt(**COLUMN_KEYS)), keys=vault)
    vault.put(lake=LAKE, pii=NEW)
    for path in entries(table):
        file = pq.ParquetFile(path_of(path), decryption_properties=vault.decryption())
        assert file.read(columns=["id", "p"]).num_rows
        with pytest.raises(PermissionError, match="pii is not"):
            file.read(columns=["note"])


def test_files_are_encrypted_anew_under_another_key(table, vault):
    """The old key is needed once more, to read them; then never again."""
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    vault.put(lake=LAKE, newer=NEW)
    plan = plan_of(table, strategy="encrypt", parameters={"footer_key": "newer"})
    assert {reason for group in plan.groups for reason in group.reasons} == {
        "2 files: are encrypted under other keys"
    }
    carry_out(table, plan, keys=vault)
    vault.put(newer=NEW)
    assert _all_rows(table, vault) == EVERYTHING
    assert not plan_of(table, strategy="encrypt", parameters={"footer_key": "newer"}).groups


def test_what_the_table_says_of_a_files_order_stays(table, vault):
    carry_out(table, plan_of(table, **SORTED))
    before = {(names.clustering_of(path), it.sort_order_id) for path, it in entries(table).items()}
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    after = entries(table)
    assert {(names.clustering_of(path), it.sort_order_id) for path, it in after.items()} == before
    for path in after:
        footer = pq.read_metadata(path_of(path), decryption_properties=vault.decryption())
        assert footer.row_group(0).sorting_columns == (pq.SortingColumn(2, nulls_first=True),)


def test_what_is_encrypted_stays_so_under_every_strategy(table, vault):
    carry_out(table, plan_of(table, **_encrypt(**COLUMN_KEYS)), keys=vault)
    said = {file.key_metadata for file in entries(table).values()}
    carry_out(table, plan_of(table, **SORTED), keys=vault)
    drop_columns(table)
    carry_out(table, plan_of(table, strategy="drop_columns"), keys=vault)
    assert {file.key_metadata for file in entries(table).values()} == said
    for path in entries(table):
        assert path_of(path).read_bytes()[:4] == b"PARE"
        assert "note" not in read(path, decryption_properties=vault.decryption()).column_names


def test_plain_and_encrypted_files_are_never_joined(table, vault):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    append(table, 2)
    append(table, 3)
    plan = plan_of(table, **SORTED)
    under = {path: file.key_metadata for path, file in entries(table).items()}
    assert len(plan.groups) == 4
    assert all(len({under[path] for path in group.inputs}) == 1 for group in plan.groups)
    assert carry_out(table, plan, keys=vault).committed
    assert sorted(it.key_metadata or b"" for it in entries(table).values()).count(b"") == 2


def test_a_plan_that_joins_files_under_different_keys_is_not_carried_out(table, vault):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    append(table, 2)
    plan = plan_of(table, **SORTED)
    mixed = tuple(path for path in entries(table) if "p=p0" in path)
    plan = replace(plan, groups=(replace(plan.groups[0], inputs=mixed),))
    (told,) = carry_out(table, plan, keys=vault).groups
    assert told.outcome == "dropped"
    assert "under different keys" in told.why


# --------------------------------------------------------------------------------------- what is refused


def test_a_fill_leaves_encrypted_files_alone_and_says_why(table, vault):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    append(table, 2)
    filling = flat_options("/lake/events", {"fill_policy": "always", "fill": "inline"})
    planned = plan_batch(table.head, 0, [Arrival(("p0",), 10)], filling, 2, Experience())
    reasons = {it.path: it.reason for it in planned.plan.decisions}
    encrypted = {path for path, it in entries(table).items() if it.key_metadata and "p=p0" in path}
    assert encrypted
    assert {path for path, reason in reasons.items() if reason == "is encrypted"} == encrypted
    filled = {file.path for bucket in planned.plan.buckets for file in bucket.inputs}
    assert filled
    assert not filled & encrypted


def test_a_group_of_encrypted_files_is_left_alone_without_keys(table, vault):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    before = set(entries(table))
    report = carry_out(table, plan_of(table, **SORTED))
    assert {group.outcome for group in report.groups} == {"dropped"}
    assert all("an input is encrypted, and no keys are given" in group.why for group in report.groups)
    assert set(entries(table)) == before


def test_a_file_that_another_writer_encrypted_is_left_alone(table, vault, monkeypatch):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    plan = plan_of(table, **SORTED)
    monkeypatch.setattr(KeyNames, "from_bytes", classmethod(lambda *_: None))
    report = carry_out(table, plan, keys=vault)
    assert report.groups
    assert all("encrypted by another writer" in group.why for group in report.groups)


def test_to_encrypt_without_keys_is_an_error_before_anything_is_written(table):
    def files():
        return {path for path in path_of(table.store.location).rglob("*") if path.is_file()}

    before = files()
    wanted = _encrypt()
    with pytest.raises(ValueError, match=r"'encrypt' needs keys=.*without it nothing is done"):
        carry_out(table, plan_of(table, **wanted))
    with pytest.raises(ValueError, match="'encrypt' needs keys="):
        clustering.schedule_and_execute(None, table.store.location, **wanted)
    with pytest.raises(ValueError, match="'encrypt' needs keys="):
        Clustering(**wanted)
    arguments = ["cluster", table.store.location, "--strategy", "encrypt", "--parameter", "footer_key=lake"]
    assert main(arguments) == CANNOT
    assert files() == before
    assert main([*arguments, "--schedule-only"]) == DONE


def test_a_plan_can_be_scheduled_where_no_keys_are(table):
    scheduled = clustering.schedule(table.store.location, **_encrypt())
    assert scheduled.plan.groups
    assert Clustering(run="elsewhere", **_encrypt()).settings.policy.strategy.name == "encrypt"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "needs the name of a key"),
        ({"footer_key": " "}, "needs the name of a key"),
        ({"footer_kei": "lake"}, "'footer_kei'; did you mean 'footer_key'"),
        ({"footer_key": "lake", "column_keys": "note"}, "must name each key and its columns"),
        ({"footer_key": "lake", "column_keys": "pii: note,,id"}, "must name each key and its columns"),
        ({"footer_key": "lake", "column_keys": ": note"}, "must name each key and its columns"),
    ],
)
def test_parameters_that_name_no_keys_are_refused_where_they_are_said(parameters, said):
    with pytest.raises(ValueError, match=said):
        pass_of(strategy="encrypt", parameters=parameters)


@pytest.mark.parametrize(
    ("column_keys", "said"),
    [
        ("pii: noet", "unknown column to encrypt 'noet'; did you mean 'note'"),
        ("pii: note; lake: note", "two keys for a column, pii, lake: note"),
        ("pii: place; lake: place.town", r"two keys for a column, pii, lake: place\.town"),
    ],
)
def test_columns_that_the_table_cannot_encrypt_are_refused_before_a_plan_is_saved(table, column_keys, said):
    with pytest.raises(ValueError, match=said):
        clustering.schedule(table.store.location, **_encrypt(column_keys=column_keys))
    assert not instants.show_plan(table, CLUSTERING)


def test_keys_that_make_no_client_are_refused():
    with pytest.raises(ValueError, match="keys must be a callable"):
        Clustering(keys={"lake": LAKE}, **_encrypt())


# ---------------------------------------------------------------------------------- what stays secret


@pytest.mark.parametrize("broken", [{}, {"lake": NEW}], ids=["no key", "another key"])
def test_a_client_that_fails_fails_the_group_and_its_words_are_not_told(table, vault, caplog, broken):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    before = set(entries(table))
    vault.put(**broken)
    with caplog.at_level(logging.DEBUG):
        report = carry_out(table, plan_of(table, **SORTED), keys=vault)
    assert {group.outcome for group in report.groups} == {"failed"}
    failure = "PermissionError" if broken else "LookupError"
    for group in report.groups:
        assert f"the keys could not unwrap a key by 'lake': {failure}" in group.why
        assert any(f"an input cannot be read: {path}" in group.why for path in before)
    for text in (report.line(), repr(report), json.dumps(report.to_dict()), caplog.text):
        assert LAKE not in text
        assert NEW not in text
    assert set(entries(table)) == before


def test_a_key_that_cannot_be_had_for_writing_leaves_nothing_behind(table, vault):
    vault.put(pii=PII)
    before = set(path_of(table.store.location).rglob("*.parquet"))
    report = carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    assert all("the keys could not wrap a key by 'lake': LookupError" in it.why for it in report.groups)
    assert set(path_of(table.store.location).rglob("*.parquet")) == before


def test_a_failure_of_the_keys_carries_nothing_of_the_clients(vault):
    vault.put(pii=PII)
    cipher = Cipher(vault)
    with pytest.raises(KeysError) as caught:
        cipher.encryption(KeyNames("lake"), ())
    assert PII not in repr(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(("key", "column"), [("pii", "a,b"), ("pii", "s.a;b"), ("p:i", "a")])
def test_a_name_that_would_be_taken_for_several_is_refused_and_not_left_plain(vault, key, column):
    leaf = Leaf(1, pa.string(), (0,), column, repeated=False)
    with pytest.raises(KeysError, match="cannot have a key of its own"):
        Cipher(vault.put(lake=LAKE, **{key: PII})).encryption(KeyNames("lake", ((key, (1,)),)), [leaf])


def test_no_secret_is_in_plans_reports_metadata_or_files(table, vault, caplog):
    with caplog.at_level(logging.DEBUG):
        scheduled = clustering.schedule(table.store.location, **_encrypt(**COLUMN_KEYS))
        report = carry_out(table, scheduled.plan, keys=vault)
    job_options = repr(pass_of(keys=vault, **_encrypt()))
    told = [report.line(), repr(report), json.dumps(report.to_dict()), caplog.text, job_options]
    table.refresh()
    told.append(scheduled.plan.explain())
    told.append(json.dumps(instants.show_plan(table, CLUSTERING), default=str))
    told.append(json.dumps(scheduled.plan.to_dict()))
    files = [path for path in path_of(table.store.location).rglob("*") if path.is_file()]
    told += [path.read_bytes().decode("latin-1") for path in files]
    told += [str(it.key_metadata) for it in entries(table).values()]
    for text in told:
        assert LAKE not in text
        assert PII not in text
        assert vault.path not in text
    assert "pii" in entries(table).popitem()[1].key_metadata.decode()


def test_bounds_of_encrypted_columns_are_not_in_the_table_and_those_of_others_are(table, vault):
    carry_out(table, plan_of(table, **_encrypt(**COLUMN_KEYS)), keys=vault)
    for file in entries(table).values():
        assert set(file.lower_bounds) == set(file.upper_bounds) == {2, 3}
        assert file.value_counts == dict.fromkeys((1, 2, 3, 5, 6, 7), ROWS // 2)
        assert set(file.column_sizes) == {1, 2, 3, 5, 6, 7}
        assert file.split_offsets


def test_without_columns_of_their_own_all_are_under_the_footers_key_and_none_has_bounds(table, vault):
    carry_out(table, plan_of(table, **_encrypt()), keys=vault)
    assert all(not file.lower_bounds for file in entries(table).values())


def test_a_bloom_filter_is_left_out_of_encrypted_files(tmp_path, vault):
    made = make_table(tmp_path / "filtered")
    made.commit([SetProperties({"write.parquet.bloom-filter-enabled.column.id": "true"})])
    append(made, 0)
    (chunk, *_) = [pq.read_metadata(path_of(path)).row_group(0).column(0) for path in entries(made)]
    assert chunk.bloom_filter_offset
    assert carry_out(made, plan_of(made, **_encrypt()), keys=vault).committed
    for path in entries(made):
        footer = pq.read_metadata(path_of(path), decryption_properties=vault.decryption())
        assert footer.row_group(0).column(0).bloom_filter_offset is None


# ------------------------------------------------------------------------------------------------ names


def test_key_metadata_is_read_again_and_that_of_others_is_not_mistaken():
    known = KeyNames("lake", (("lake", (1,)), ("pii", (5, 6, 7))))
    assert KeyNames.from_bytes(known.to_bytes()) == known
    for other in (b"", b"\x01\x02", b"[]", b"{}", b'"x"', b'{"format": "avro", "footer-key": "a"}'):
        assert KeyNames.from_bytes(other) is None


def test_a_struct_stands_for_all_that_is_below_it():
    encrypt = Encrypt({"footer_key": "lake", **COLUMN_KEYS})
    assert encrypt.key_names(leaf_names(SCHEMA)).columns == (("lake", (1,)), ("pii", (5, 6, 7)))


def test_a_cipher_travels_without_what_it_has_unwrapped(vault):
    cipher = Cipher(vault)
    cipher.decryption()
    assert pickle.dumps(pickle.loads(pickle.dumps(cipher))) == pickle.dumps(Cipher(vault))
