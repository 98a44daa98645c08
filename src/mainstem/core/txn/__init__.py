"""Transactions: which producer a transactional id has, which partitions it writes to, and how each transaction ends.

`TxnMachine` (machine) coordinates the transactional ids in one partition of `__transaction_state`. It is pure: requests
come in, an `Outcome` (`core/coordinator/effects`) goes out. State (`TxnStore`) is the newest record of each id and
changes only in `replay`, so that a coordinator that takes over knows what the last one knew (T10).

A transaction ends in two steps: what was decided is written (PrepareCommit, PrepareAbort) and answered; then the
machine orders markers (`SendMarkers`), which its driver brings to the partitions' leaders, as often as it takes, and
when all are there the end is written (CompleteCommit, CompleteAbort). In between the id answers
CONCURRENT_TRANSACTIONS.

Sources: KIP-98, 360, 447, 588, 664, 890, 939; the facts were checked against Kafka 4.3.
"""
