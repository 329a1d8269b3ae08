"""`python -m registry` moves versions through their gates and shows them in the console."""

from infra.process import run_process
from registry.loop import keep

if __name__ == "__main__":
    run_process("registry", keep)
