"""`python -m rewarding` turns episode revisions into rewards and samples."""

from infra.process import run_process
from rewarding.loop import reward

if __name__ == "__main__":
    run_process("rewarding", reward)
