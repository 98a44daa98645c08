"""One Spark session and one broker of each kind for all tests of the folder.

The session is small, and tries a task up to four times, so that a worker may be killed. Where Java or PySpark is
missing, tests are skipped and say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.client.sync_admin import Admin
from mainstem.spark.spark_session import missing
from tests.spark import quick
from tests.spark.brokers import Broker
from tests.support.kafka import Kafka, KafkaNode
from tests.support.kafka import missing as kafka_missing
from tests.support.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = {
    **quick.DRIVER,
    "spark.driver.memory": "768m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from mainstem.spark.spark_session import session

    # Workers import what this process imports: the build under test, and the tests' own data source.
    paths = [str(Path(mainstem.__file__).parents[1]), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    warehouse = tmp_path_factory.mktemp("spark")
    made = session(
        "tests",
        "local[2,4]",
        {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse), "spark.local.dir": str(warehouse)},
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def mainstem_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Node(tmp_path_factory.mktemp("mainstem")) as node:
        yield Broker("mainstem", node.bootstrap, node.data)


@pytest.fixture(scope="session")
def mainstem_v1_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One of a cluster that has transactions of version 1, where partitions are added before they are written."""
    with Node(tmp_path_factory.mktemp("mainstem-v1")) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.update_features({"transaction.version": 1}, downgrade=True)
        yield Broker("mainstem-v1", node.bootstrap, node.data)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    reason = kafka_missing()
    if reason is not None:
        pytest.skip(reason)
    found = Kafka()
    found.fetch()
    with KafkaNode(found, tmp_path_factory.mktemp("kafka")) as node:
        yield Broker("kafka", node.bootstrap, node.data)


@pytest.fixture(params=["mainstem", "kafka"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found = request.getfixturevalue(f"{request.param}_broker")
    assert isinstance(found, Broker)
    return found
