"""The bench: asks one version by name, never the live alias, and reports what came back with intervals."""
