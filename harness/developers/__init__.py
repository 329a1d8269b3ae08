"""Simulated developers who type real code: they ask, decide, change their minds, resend, and arrive out of order."""
