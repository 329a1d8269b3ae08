"""One adapter per outside system, the supervisor, and the `slipstream` command."""
