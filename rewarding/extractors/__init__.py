"""One file per signal. Each docstring gives formula, range, unit and source."""
