"""The `slipstream` command. It starts processes and reads what they tell; it imports no stage."""
