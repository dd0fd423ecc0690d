"""Taking profiles, of a running job or from inside one: the only place that imports tensorflow, grpc or h2."""
