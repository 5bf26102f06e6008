"""Where tests and benchmarks get the JARs that they need: Iceberg's as a judge and a peer, Delta's as a peer,
Kafka's as a source.

The product itself needs no JAR.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from demo.jars import ICEBERG, Jar, JarUnavailableError, cached

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "JarUnavailableError",
    "delta_runtime",
    "iceberg_runtime",
    "kafka_broker",
    "kafka_for_spark",
    "require_iceberg_runtime",
]

_DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)

_KAFKA_CLIENT = Jar(
    "org.apache.kafka",
    "kafka-clients",
    "3.9.1",
    "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
)
# Before 4.1.3 a query that repeats a batch after a restart fails (SPARK-55271).
_KAFKA_FOR_SPARK = (
    _KAFKA_CLIENT,
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.1.3",
        "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.1",
        "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae",
    ),
)
# What a broker loads beside the JARs that PySpark ships: of the release whose client Spark takes.
_KAFKA_BROKER = (
    _KAFKA_CLIENT,
    Jar(
        "com.typesafe.scala-logging",
        "scala-logging_2.13",
        "3.9.5",
        "87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545",
    ),
    Jar(
        "com.yammer.metrics",
        "metrics-core",
        "2.2.0",
        "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c",
    ),
    Jar(
        "commons-validator",
        "commons-validator",
        "1.7",
        "4d74f4ce4fb68b2617edad086df6defdf9338467d2377d2c62e69038e1c4f02f",
    ),
    Jar(
        "net.sf.jopt-simple",
        "jopt-simple",
        "5.0.4",
        "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28",
    ),
    Jar(
        "net.sourceforge.argparse4j",
        "argparse4j",
        "0.7.0",
        "65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56",
    ),
    Jar(
        "org.apache.kafka",
        "kafka_2.13",
        "3.9.1",
        "5631c61356d55611c158291a69ad028f3c4fed5d0a610c62a0853c65c89d10f6",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-group-coordinator",
        "3.9.1",
        "fd30310533df51b17d14beb8eb8c9006a9ebb90b536c319776429e413f622a69",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-group-coordinator-api",
        "3.9.1",
        "cb267d841def1172d8db24a830936f1c6aaf29c3de5bdbc5bbc42b67d8cb82c0",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-metadata",
        "3.9.1",
        "35c35118d4abb0b747ad68d1e0be00d5bd02206b462ad76ebbcd85b33436f13a",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-raft",
        "3.9.1",
        "0d4236cf868f8668c74c49bec4bed41e400bb13d6d381a0f8e9843585b2f159f",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-server",
        "3.9.1",
        "02b5a92645865e3152e9d1d829f6d4c4b4272f637b7fe4a2b00cabcbcd8df6f4",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-server-common",
        "3.9.1",
        "99f1f5f81e9d39cfbe5c96ab8e3854be8deca465937192c9a6e2f231678d31f6",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-storage",
        "3.9.1",
        "a3041e6192a37e5508519d776f8af93b74d3fd23174b03e270c0394f1c77b59f",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-storage-api",
        "3.9.1",
        "f466777625641d4bca1314d80206eafa9e2494326496ad626489ba0a0ef479fc",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-tools-api",
        "3.9.1",
        "c365c872ffc9a04886f248c5fd90067829ed4064fcd8fe5e12611b163cd053b4",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-transaction-coordinator",
        "3.9.1",
        "45b852f2e6e501d4dbdd43b97c4057e6cb6827b76e5aabcffcae8b8e2918554f",
    ),
    Jar(
        "org.pcollections",
        "pcollections",
        "4.0.1",
        "1f82766d7c3221930854033bebff5073ea46b43f27326074bbe15d148c18bfb3",
    ),
    Jar(
        "org.scala-lang.modules",
        "scala-java8-compat_2.13",
        "1.0.2",
        "90d5b13656be93fb779b8d7c723efa2498a34af06273bb5204afb65f85a20c1b",
    ),
)


def iceberg_runtime() -> Path:
    """Return the path of the Iceberg Spark runtime, downloaded once into the user's cache folder."""
    return cached(ICEBERG)


def delta_runtime() -> tuple[Path, ...]:
    """Return the paths of Delta for Spark and of what it needs, downloaded as `iceberg_runtime`."""
    return tuple(map(cached, _DELTA))


def kafka_for_spark() -> tuple[Path, ...]:
    """Return the paths of Spark's source and sink of Kafka and of what they need, as `iceberg_runtime`."""
    return tuple(map(cached, _KAFKA_FOR_SPARK))


def kafka_broker() -> tuple[Path, ...]:
    """Return the paths of Kafka's broker and tools, which need PySpark's JARs too, as `iceberg_runtime`."""
    return tuple(map(cached, _KAFKA_BROKER))


def require_iceberg_runtime() -> Path:
    """Return the JAR's path; where it cannot be downloaded, skip the test, but fail it in CI."""
    try:
        return iceberg_runtime()
    except JarUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
