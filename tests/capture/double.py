"""A profiler server that does what TensorFlow 2.21 cannot be made to do: old behaviour, odd refusals, large replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from tfperf.formats.wire.schema import PROFILER, SERVICE

Answer = Callable[[Any, grpc.ServicerContext], bytes]
"""Takes a ProfileRequest (or raises through `context.abort`), gives the serialized response."""


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, answers: Mapping[str, Answer], service: str) -> None:
        self._answers = {f"/{service}/{name}": answer for name, answer in answers.items()}

    def service(self, handler_call_details: Any) -> Any:
        answer = self._answers.get(handler_call_details.method)
        if answer is None:
            return None

        def respond(request: bytes, context: grpc.ServicerContext) -> bytes:
            return answer(PROFILER.message_class("ProfileRequest").FromString(request), context)

        return grpc.unary_unary_rpc_method_handler(respond)


@contextmanager
def serving(
    answers: Mapping[str, Answer],
    address: str = "127.0.0.1:0",
    *,
    service: str = SERVICE,
    credentials: grpc.ServerCredentials | None = None,
) -> Iterator[int]:
    """Serve these methods; gives the port."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((_Methods(answers, service),))
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait(10)


def response(xspace: bytes | None = None, *, empty: bool = False) -> bytes:
    """Return a serialized ProfileResponse; without a trace, as older servers answer."""
    reply = PROFILER.message_class("ProfileResponse")(empty_trace=empty)
    if xspace is not None:
        reply.xspace = xspace
    return bytes(reply.SerializeToString())


def refuse(code: grpc.StatusCode, words: str) -> Answer:
    """Return an answer that is an error."""

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        context.abort(code, words)
        raise AssertionError("abort raises")

    return answer
