"""The asyncio shell around the decisions: one file per API, drivers for the machines, and the node that joins them."""
