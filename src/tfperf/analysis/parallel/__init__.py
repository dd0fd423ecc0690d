"""Work on many hosts at once: on processes of this machine, on a cluster, or on any executor."""
