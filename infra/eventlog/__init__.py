"""The event log: topics with partitions, consumer groups, offsets. `port` says what it promises, two adapters keep it."""
