"""Turns and outcomes become episodes, whatever the order in which they arrive."""
