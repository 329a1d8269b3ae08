"""One file per suite."""
