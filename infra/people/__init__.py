"""What people may ask of the service: not to be recorded, to see what is there of them, to be gone; and secrets found in text."""
