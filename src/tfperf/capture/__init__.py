"""Taking profiles, of a running job over gRPC and from inside a job: the only place that imports tensorflow or grpc."""
