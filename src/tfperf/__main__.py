"""`python -m tfperf`."""

from tfperf.cli import main

if __name__ == "__main__":
    main(prog_name="tfperf")
