"""The version of tfperf. The build reads it from here too."""

__version__ = "0.2.0"
