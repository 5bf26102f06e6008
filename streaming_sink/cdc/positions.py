"""The position of a change in the log of its database, by the connector of Debezium, as 35 decimal digits.

Fields of fixed width beside each other, the coarsest one first, compare as the positions do. Where the log
has the changes of transactions mixed, the commit comes first: a snapshot has what was committed before it,
and a transaction that commits after it may have changed a row before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.table.row_expressions import summarize_error, type_of_value
from streaming_sink.table.sql_names import quoted
from timeline.errors import SchemaMismatchError

DIGITS = 35
_LSN = r"^([0-9a-fA-F]{8}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})$"
"""SQL Server's and Db2's."""
_LSN_OF_POSTGRESQL = r"^([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})$"
_RS_ID = r"^\s*(?:0x)?([0-9a-fA-F]+)\.([0-9a-fA-F]+)\.([0-9a-fA-F]+)\s*$"
_METADATA = "transaction.total_order, with provide.transaction.metadata=true in the connector"


@dataclass(frozen=True)
class Position:
    """The position of each change."""

    digits: Column
    """At most so many digits, which compare as numbers; null where there are none, or more."""
    given: Column
    """Whether the change has something of a position."""
    says: str
    """Where it is, for errors."""


@dataclass(frozen=True)
class _Source:
    """What a source says of its changes, by the names of Debezium; what it does not say is null."""

    names: Mapping[str, Column]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Column:
        return self.names.get(name, sf.lit(None).cast("string"))


def check_sequence(envelope: DataFrame, sequence: object) -> None:
    """Raise TypeError or ValueError for what is no SQL expression of a whole number of one change, or text of
    one, the same whenever it is computed.
    """
    if not isinstance(sequence, str) or not sequence.strip():
        raise TypeError(
            f'sequence must be an SQL expression over the envelope, such as "source.ts_us", not {sequence!r}'
        )
    try:
        kind = type_of_value(envelope, sf.expr(sequence))
    except PySparkException as error:
        raise ValueError(
            "sequence is no SQL expression of one change, the same whenever it is computed, over"
            f" {', '.join(envelope.columns)}: {sequence}: {summarize_error(error)}"
        ) from error
    whole = isinstance(kind, spark.IntegralType | spark.StringType | spark.NullType)
    if not whole and not (isinstance(kind, spark.DecimalType) and not kind.scale):
        raise ValueError(
            f"sequence must be a whole number, or text of one, and {sequence} is {kind.simpleString()}; take"
            " unix_micros of a time, and CAST(… AS DECIMAL(35, 0)) of another number"
        )


def own_position(sequence: str) -> Position:
    """Return the value of a user's expression as a position."""
    value = sf.expr(sequence)
    return Position(
        _digits(value, DIGITS),
        value.isNotNull(),
        f"{sequence} is no whole number of up to {DIGITS} digits",
    )


def log_position(envelope: DataFrame) -> Position:
    """Return the position by what the `source` of an envelope has. SchemaMismatchError where that orders no
    changes.
    """
    source = _Source({**_fields(envelope, "source"), **_fields(envelope, "transaction")})
    for names, make, says in _CONNECTORS:
        if any(name in source for name in names):
            known = [source[name] for name in names if name in source]
            given = reduce(or_, (each.isNotNull() for each in known))
            return Position(make(source), given, f"it takes {says}")
    raise SchemaMismatchError(
        "the source of the envelope has no position in a log, so nothing orders the changes of a key; give"
        f' debezium a sequence, such as sequence="source.ts_us": {", ".join(source.names)}'
    )


def _fields(envelope: DataFrame, struct: str) -> Mapping[str, Column]:
    kind = envelope.schema[struct].dataType if struct in envelope.columns else None
    if not isinstance(kind, spark.StructType):
        return {}
    return {name: sf.col(f"{struct}.{quoted(name)}").cast("string") for name in kind.names}


def _digits(value: Column, width: int) -> Column:
    """Return a whole number as so many digits; null where it has more, or is none."""
    text = sf.regexp_replace(value.cast("string"), "^0+(?=.)", "")
    return sf.when(text.rlike(f"^[0-9]{{1,{width}}}$"), sf.lpad(text, width, "0"))


def _hex(text: Column, width: int) -> Column:
    return _digits(sf.conv(text, 16, 10), width)


def _parts(text: Column, pattern: str, *widths: int) -> Column:
    """Return the hexadecimal groups of a text as digits; null where it does not match."""
    groups = (_hex(sf.regexp_extract(text, pattern, at), width) for at, width in enumerate(widths, 1))
    return sf.when(text.rlike(pattern), sf.concat(*groups))


def _mysql(source: _Source) -> Column:
    if "row" not in source:
        raise SchemaMismatchError(
            "one event of a binlog has one file and pos for all of its rows, which source.row numbers, and"
            f" the source of the envelope has no row: add `row int` to its type: {', '.join(source.names)}"
        )
    number = sf.regexp_extract(source["file"], r"\.([0-9]+)$", 1)
    return sf.concat(_digits(number, 10), _digits(source["pos"], 14), _digits(source["row"], 10))


def _postgresql(source: _Source) -> Column:
    if "sequence" not in source:
        raise SchemaMismatchError(
            "the log of PostgreSQL has the changes of transactions mixed, so source.lsn alone does not put"
            " them in the order of their commits, and the source of the envelope has no sequence: add"
            f" `sequence string` to its type: {', '.join(source.names)}"
        )
    commit = _lsn(sf.regexp_extract(source["sequence"], r'^\s*\[\s*"([^"]+)"', 1))
    lsn = sf.lpad(_lsn(source["lsn"]), 18, "0")
    # Before the first transaction that a connector reads it knows no commit. Rows of a snapshot come before
    # all changes after that commit: the log may have these before the place where the snapshot was taken.
    lead = sf.when(source["sequence"].rlike(r"^\s*\[\s*null"), "0" * 17).otherwise(commit)
    of_read = sf.when(lsn.isNotNull(), "0" * 18)
    return sf.concat(lead, sf.when(sf.col("op") == "r", of_read).otherwise(lsn))


def _lsn(text: Column) -> Column:
    """Return the place in PostgreSQL's log, from the number, or from its text `16/B374D848`."""
    both = sf.concat(
        sf.regexp_extract(text, _LSN_OF_POSTGRESQL, 1),
        sf.lpad(sf.regexp_extract(text, _LSN_OF_POSTGRESQL, 2), 8, "0"),
    )
    return sf.when(text.rlike(_LSN_OF_POSTGRESQL), _hex(both, 17)).otherwise(_digits(text, 17))


def _sql_server(source: _Source) -> Column:
    # A row's changes in two transactions are as their commits are, by the place of either.
    in_order = source["total_order"].isNotNull() | (sf.col("op") == "r")
    lsn = sf.when(in_order, source["commit_lsn"]).otherwise(source["change_lsn"])
    inside = sf.coalesce(source["total_order"], source["event_serial_no"], sf.lit("0"))
    return sf.concat(_parts(lsn, _LSN, 10, 10, 5), _digits(inside, 10))


def _oracle(source: _Source) -> Column:
    read = sf.col("op") == "r"
    inside = sf.coalesce(
        sf.when(read, sf.lit("0" * 20)),
        _digits(source["total_order"], 20),
        _parts(source["rs_id"], _RS_ID, 7, 9, 4),
    )
    commit = sf.coalesce(source["commit_scn"], sf.when(read, source["scn"]))
    return sf.concat(_digits(commit, 15), inside)


def _lsns(source: _Source) -> Column:
    """Return the position of SQL Server and Db2, whose numbers have three parts, or of Informix."""
    return sf.coalesce(_sql_server(source), _informix(source))


def _informix(source: _Source) -> Column:
    return sf.concat(_digits(source["commit_lsn"], 17), _digits(source["change_lsn"], 18))


def _mongodb(source: _Source) -> Column:
    alone = sf.when(source["txnNumber"].isNull(), sf.lit("0"))
    inside = sf.coalesce(source["total_order"], alone)
    return sf.concat(_digits(source["ts_ms"], 15), _digits(source["ord"], 10), _digits(inside, 10))


def _vitess(source: _Source) -> Column:
    epoch, rank = _digits(source["transaction_epoch"], 5), _digits(source["transaction_rank"], 20)
    place = sf.concat(epoch, rank, _digits(source["total_order"], 10))
    # Rows of a snapshot are of no transaction.
    alone = (sf.col("op") == "r") & source["transaction_rank"].isNull()
    return sf.when(alone, "0" * DIGITS).otherwise(place)


def _spanner(source: _Source) -> Column:
    inside = _digits(source["sequence"], 10), _digits(sf.coalesce(source["mod_number"], sf.lit("0")), 5)
    return sf.concat(_digits(source["ts_us"], 20), *inside)


_CONNECTORS: tuple[tuple[tuple[str, ...], Callable[[_Source], Column], str], ...] = (
    (("file", "pos"), _mysql, "source.file, which ends in a number, source.pos and source.row"),
    (("lsn",), _postgresql, "source.sequence and source.lsn"),
    (
        ("change_lsn", "commit_lsn"),
        _lsns,
        "source.change_lsn and source.commit_lsn, as eight, eight and four hexadecimal digits, or as whole"
        " numbers, which are Informix'",
    ),
    (("scn", "commit_scn"), _oracle, f"source.commit_scn and source.rs_id, or {_METADATA}"),
    (
        ("vgtid",),
        _vitess,
        "transaction_epoch, transaction_rank and total_order of its transaction, with"
        " transaction.metadata.factory=VitessOrderedTransactionMetadataFactory in the connector",
    ),
    (("ord",), _mongodb, f"source.ts_ms and source.ord; in a transaction {_METADATA}"),
    (
        ("server_transaction_id", "mod_number"),
        _spanner,
        "source.ts_us, source.sequence and source.mod_number",
    ),
)
"""Names that only the source of these connectors has; how its positions are made, and what of."""
