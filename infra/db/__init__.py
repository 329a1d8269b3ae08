"""The database: rows that must be claimed exactly once. `engine` opens it, `tables` says what is in it."""
