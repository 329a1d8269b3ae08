"""Weights earn their traffic: ledger, gates, canary statistics, rollout controller, operator console."""
