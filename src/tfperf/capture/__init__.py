"""Taking profiles, of running jobs or from inside one: the only package that imports tensorflow or grpc."""
