"""What a coordinator has verified for a leader: of which producers the next batch may begin a transaction, and where.

A marker of the same epoch may come before that batch. Then nothing but the leader's second look keeps the batch from
beginning a transaction that nobody ends (KAFKA-14884): a later epoch, as a time-out or version 2 gives it, would be
refused for itself.
"""

from mainstem.protocol.errors import ErrorCode
from mainstem.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from mainstem.protocol.schema import Message
from mainstem.sim.ledger import Place

Whose = tuple[Place, int, int]
"""A partition, a producer id and its epoch."""


def verified_by(request: AddPartitionsToTxnRequest, answer: Message) -> list[Whose]:
    """What was asked about, not added, and is part of its transaction."""
    assert isinstance(answer, AddPartitionsToTxnResponse)
    producers = {
        each.transactional_id: (each.producer_id, each.producer_epoch)
        for each in request.transactions
        if each.verify_only
    }
    return [
        ((topic.name, result.partition_index), *producers[transaction.transactional_id])
        for transaction in answer.results_by_transaction
        if transaction.transactional_id in producers
        for topic in transaction.topic_results
        for result in topic.results_by_partition
        if result.partition_error_code == ErrorCode.NONE
    ]
