"""How the replicas of a partition agree: who leads, who is in sync, and what is committed."""
