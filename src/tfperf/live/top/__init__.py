"""A live view of running jobs: sample their profiler servers again and again, and show what the samples say."""
