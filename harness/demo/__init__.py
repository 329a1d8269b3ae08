"""The demo: a crowd of simulated developers in front of a real deployment, and the table that says what came of it."""
