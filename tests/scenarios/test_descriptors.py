"""A process may open so many files and no more: who only connects, however often, does not take them from the logs."""

import socket
from pathlib import Path

from mainstem.broker.descriptors import Descriptors
from mainstem.client.admin_types import NewTopic
from mainstem.client.sync_admin import Admin
from mainstem.client.sync_producer import Producer
from mainstem.storage.open_files import OpenFiles
from tests.support.logs import new_disk
from tests.support.node import Node

FILES_MAX = 256
PARTITIONS = 40


def test_connections_take_descriptors_from_idle_files_and_leave_a_part_to_the_logs() -> None:
    files = OpenFiles(new_disk(), 80)
    shared = Descriptors(80, files, 1 << 31)
    assert all(shared.clients.enter() for _ in range(50))
    assert not shared.clients.enter()
    assert files.capacity == 29
    for _ in range(20):
        shared.controllers.enter()
    assert files.capacity == 20, "the logs keep their part"
    for _ in range(51):
        shared.clients.leave()
    assert files.capacity == 60
    assert shared.clients.enter()
    shared.clients.most = 1
    assert not shared.clients.enter()


def test_as_many_connections_as_the_system_allows_cost_no_log_its_disk(tmp_path: Path) -> None:
    """New peers are sent away; those that were there go on, and so do the logs."""
    with (
        Node(tmp_path, files_max=FILES_MAX) as node,
        Admin(bootstrap_servers=node.bootstrap) as admin,
        Producer(bootstrap_servers=node.bootstrap) as producer,
    ):
        admin.create_topics([NewTopic("before", PARTITIONS, 1)])

        def send(topic: str) -> list[int]:
            sent = [producer.send(topic, b"v", partition=index) for index in range(PARTITIONS)]
            producer.flush()
            return [future.result(10).offset for future in sent]

        assert send("before") == [0] * PARTITIONS
        peers: list[socket.socket] = []
        try:
            for _ in range(3 * FILES_MAX):
                peers.append(socket.create_connection(("127.0.0.1", node.port), 5))
            admin.create_topics([NewTopic("after", PARTITIONS, 1)])
            assert send("before") == [1] * PARTITIONS
            assert send("after") == [0] * PARTITIONS
        finally:
            for peer in peers:
                peer.close()


def test_more_partitions_are_flushed_in_one_moment_than_files_may_be_open(tmp_path: Path) -> None:
    """Each flush has files of its own. Those that do not fit wait their turn, and no disk is taken for a failed one."""
    settings = {"log.flush.interval.messages": "1"}
    many = FILES_MAX + 50
    with (
        Node(tmp_path, settings, files_max=FILES_MAX) as node,
        Admin(bootstrap_servers=node.bootstrap) as admin,
        Producer(
            bootstrap_servers=node.bootstrap, linger_ms=200, request_timeout_ms=10_000, delivery_timeout_ms=20_000
        ) as producer,
    ):
        admin.create_topics([NewTopic("many", many, 1)])
        for value in range(2):
            sent = [producer.send("many", b"v", partition=index) for index in range(many)]
            producer.flush()
            assert [future.result(10).offset for future in sent] == [value] * many
        assert node.stop() == 0, "the stop flushes many, too"
