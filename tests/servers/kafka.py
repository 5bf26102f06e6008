"""One Kafka broker (KRaft) on a free port of this machine, and a producer that is fed line by line."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests import jars
from tests.servers import binaries, launch

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions=3
"""
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_PRODUCER_SECONDS = 120


@dataclass
class Broker:
    """A running broker. A topic that is written to is created, with three partitions."""

    address: str
    _command: list[str]
    _folder: Path
    _life: contextlib.ExitStack

    def start(self) -> None:
        """Run the broker, and wait until it listens."""
        self._life.enter_context(launch.running(self._command, self._folder, {}, f"tcp://{self.address}"))

    def restart(self) -> None:
        """End the broker, and run it again on its data."""
        self._life.close()
        self.start()

    @contextlib.contextmanager
    def producer(self, topic: str, folder: Path) -> Iterator[Producer]:
        """Start a producer; after the block the topic has all that it was sent, once, or the block fails."""
        command = [*_java("64m"), "kafka.tools.ConsoleProducer", "--bootstrap-server", self.address]
        command += ["--topic", topic, "--request-required-acks", "all"]
        command += ["--producer-property", "enable.idempotence=true", "--producer-property", "linger.ms=5"]
        with (folder / "producer").open("w+") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True
            )
            try:
                yield Producer(process)
                process.communicate(timeout=_PRODUCER_SECONDS)
            finally:
                process.kill()
                process.wait()
            log.seek(0)
            said = log.read()
        assert process.returncode == 0, said
        assert "ERROR" not in said, said  # a message that it could not send is only logged


@dataclass(frozen=True)
class Producer:
    """Kafka's own, in a process of its own; it outlives whoever reads."""

    process: subprocess.Popen[str]

    def send(self, messages: Iterable[str]) -> None:
        """Hand over messages without line breaks; the broker has them soon."""
        assert self.process.stdin is not None
        self.process.stdin.writelines(f"{message}\n" for message in messages)
        self.process.stdin.flush()


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """Run a broker whose data lie in the folder. JarUnavailableError where Kafka cannot be had."""
    port, controller = launch.free_port(), launch.free_port()
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
    format_disk = [*_java("128m"), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
    subprocess.run(format_disk, check=True, capture_output=True)
    address = f"127.0.0.1:{port}"
    with contextlib.ExitStack() as life:
        made = Broker(address, [*_java("256m"), "kafka.Kafka", str(settings)], folder, life)
        made.start()
        yield made


def _java(heap: str) -> list[str]:
    """Return the start of a command: bounded memory, and no logger but for errors, which is PySpark's."""
    places = [*map(str, jars.kafka_broker()), str(Path(pyspark.__file__).parent / "jars" / "*")]
    options = [f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [binaries.java(), *options, "-cp", ":".join(places)]
