"""Drives the service as its users would. It speaks HTTP and records, and nothing imports it."""
