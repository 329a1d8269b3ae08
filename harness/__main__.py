"""`python -m harness bench` judges checkpoints; `python -m harness demo` is the crowd of the demo."""

import sys


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "bench":
        from harness.bench.loop import bench
        from infra.process import run_process

        run_process("bench", bench)
    elif what == "demo":
        from harness.demo.main import demo

        sys.exit(demo(sys.argv[2:]))
    else:
        sys.exit("usage: python -m harness bench|demo")


if __name__ == "__main__":
    main()
