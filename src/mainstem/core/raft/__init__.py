"""The metadata quorum: who leads it, what is durable, and what that commits."""
