"""From events to episodes: `collect` takes what clients send, `join` brings turns and outcomes together."""
