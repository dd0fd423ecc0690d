"""Shared basics: errors, units, arrays, files, remote paths, this process, and the version."""

__version__ = "0.2.0"
"""The version of tfperf, also read by the build."""
