"""The only code that touches files: Kafka's log and its indexes, snapshots and checkpoints, to the bit."""
