"""The V2 protocol over gRPC: the front itself.

Needs grpcio and nothing else: messages are read and written by `wire`. Field numbers are those of the published
grpc_service.proto and model_config.proto.
"""

from __future__ import annotations

from typing import Any

from calibrant.errors import MissingExtra
from calibrant.serve.config import ServeConfig
from calibrant.serve.grpc.service import Service
from calibrant.serve.processes.listener import cannot_listen, probe


async def start(service: Service, config: ServeConfig, *, shared_port: bool = False) -> tuple[Any, int]:
    """The running server and its port, which other workers may listen on as well."""
    try:
        import grpc
    except ImportError:
        raise MissingExtra("calibrant serve --grpc-port", "grpc", "grpcio") from None
    assert config.grpc_port is not None
    if not shared_port:  # gRPC's own library writes lines of its own to stderr about a port that is taken
        probe(config.host, config.grpc_port, option="--grpc-port")
    size = config.limits.max_body
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", size),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", int(shared_port)),
        ]
    )
    server.add_generic_rpc_handlers(service.handlers())
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = f"{host}:{config.grpc_port}"
    try:
        if config.tls_cert is not None:
            key = (config.tls_key or config.tls_cert).read_bytes()
            secure = grpc.ssl_server_credentials([(key, config.tls_cert.read_bytes())])
            port = server.add_secure_port(address, secure)
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise cannot_listen(str(error), host, config.grpc_port, "--grpc-port") from None
    await server.start()
    return server, int(port)
