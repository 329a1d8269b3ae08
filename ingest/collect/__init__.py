"""HTTP in, records out: each event is judged by itself, and the answer says what became of it."""
