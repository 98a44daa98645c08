"""Apache Kafka as a fixture, for every test of this folder."""

from tests.support.kafka import kafka, kafka_node

__all__ = ["kafka", "kafka_node"]
