"""One file per gate. Each docstring says what is compared, and when it passes, fails or is unsure."""
