"""gRPC's reflection: the services and their messages, told to tools that do not have their files."""
