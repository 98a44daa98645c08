"""Decisions without I/O: no asyncio, no files, no sockets, no clock, no randomness. Imports `protocol` alone."""
