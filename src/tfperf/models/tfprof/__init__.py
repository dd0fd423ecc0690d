"""tfprof: what a model costs, by name scope, graph, op and line of code. Its public names are in `tfperf.tfprof`."""
