"""What a commit costs in requests on an S3 server; docs/stores.md names the price."""

from __future__ import annotations

import pytest

from tests.servers.launch import Server
from tests.servers.proxy import Proxy
from tests.servers.writing import SCHEMA, one_file
from timeline.changes.changes import Append, Replace
from timeline.table import Committed, Table

pytestmark = pytest.mark.servers


@pytest.fixture
def table(s3: Server, proxy: Proxy, folder: str) -> Table:
    """A table with one commit, seen through the proxy by a process whose caches are warm."""
    store = s3.at(proxy.endpoint).store(folder)
    table = Table.create(store, SCHEMA)
    table.commit([Append((one_file(store),))], open_below_bytes=5000)
    proxy.count()
    return table


def test_an_append_takes_one_list_one_get_and_four_puts(table: Table, proxy: Proxy) -> None:
    table.commit([Append((one_file(table.store),))])
    assert proxy.count() == {"LIST": 1, "GET": 1, "PUT": 4}


def test_a_fill_takes_one_list_one_get_and_at_most_seven_puts(table: Table, proxy: Proxy) -> None:
    (small,) = table.head.live_files()
    new, merged = one_file(table.store), one_file(table.store, rows=2)
    proxy.count()
    replace = Replace(frozenset({small.location, new.file_path}), (merged,))
    committed = table.commit([Append((new,)), replace], open_below_bytes=5000)
    assert isinstance(committed, Committed)
    assert not committed.dropped
    counted = proxy.count()
    assert counted.pop("PUT") <= 7
    assert counted == {"LIST": 1, "GET": 1}


def test_a_refresh_takes_one_list_while_nothing_changed(table: Table, proxy: Proxy) -> None:
    table.refresh()
    assert proxy.count() == {"LIST": 1}
