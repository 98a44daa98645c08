"""Bytes to values and back. Imports nothing else of ours."""
