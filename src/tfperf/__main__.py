"""`python -m tfperf`."""

from tfperf.cli import run

if __name__ == "__main__":
    run()
