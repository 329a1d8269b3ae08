"""One file per recording that can be replayed. Each docstring says what its lines mean here, and what they do not say."""
