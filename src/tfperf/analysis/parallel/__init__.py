"""Analysis of many hosts in parallel: on processes of this machine, a cluster, or any executor."""
