"""What every room uses: errors, units, arrays, files, addresses, this process. And the version."""

__version__ = "0.2.0"
"""The version of tfperf. The build reads it from here too."""
