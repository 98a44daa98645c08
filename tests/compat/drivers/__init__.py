"""Drivers: one small program for each make of client, all with the same requests."""
