"""A profiler server that does what TensorFlow 2.21 cannot be made to do: old behaviour, odd refusals, large replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
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


def replies(xspace: bytes | None = None, *, empty: bool = False) -> Answer:
    return lambda request, context: response(xspace, empty=empty)


def writes_on_its_disk(trace: bytes) -> Answer:
    """Return an answer of an old server: it writes the trace itself, and sends none."""

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        folder = Path(request.repository_root) / request.session_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{request.host_name}.xplane.pb").write_bytes(trace)
        return response()

    return answer


def refuse(code: grpc.StatusCode, words: str) -> Answer:
    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        context.abort(code, words)
        raise AssertionError("abort raises")

    return answer
