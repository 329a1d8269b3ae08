"""Nothing is kept longer than its policy says, and deletions that had to wait are finished."""
