"""Recorded traffic goes through the service as if it happened now: its times, its order, its ids."""
