"""Consumer groups: who is a member, which generation they agreed on, and the offsets they committed.

`GroupMachine` (machine) is the coordinator of the groups in one partition of `__consumer_offsets`. It is pure: requests
and fired timers come in, an `Outcome` (`core/coordinator/effects`) goes out: records to write, replies, timers, and
what to tell the machine once the records are committed.

Two kinds of state, kept apart:
- `GroupStore` (store) is what survives. It changes only in `replay`, is a map from a record's key to its newest value,
  and is therefore the same after replaying the log and after replaying any compaction of it (G6).
- `ClassicGroup` (classic) is what a running coordinator knows besides: who has joined the next generation, who is
  waiting for an answer. A coordinator that takes over builds it from the store. Kafka writes a group's metadata when
  a generation becomes stable or empty and not in between, so a rebalance that was under way starts again.

Sources: KIP-62, 134, 211, 229, 268, 345, 389, 394, 496, 559, 800, 814; the facts were checked against Kafka 4.3.
"""
