"""`python -m serving` answers requests with the versions that the registry says."""

from infra.process import run_process
from serving.loop import answer

if __name__ == "__main__":
    run_process("serving", answer)
