"""The OpenAI-compatible door: completions, chat, models, health.

Enters: HTTP requests. Leaves: answers with their turn, episode and version in headers and body. What can go wrong: every
error is in OpenAI's shape. Handlers are plain and bodies are dictionaries: a request costs about a millisecond here, the
model excluded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.answer import Answered, Call, Desk, Running
from serving.openai import (
    ChatAsk,
    CompletionAsk,
    Json,
    Refused,
    chat_choice,
    completion_choice,
    finish_reason,
    invalid,
    read_ask,
    read_caller,
    usage,
)
from serving.stream import Pieces, Tokens

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def make_gateway(desk: Desk, max_body: int) -> FastAPI:
    app = FastAPI(title="Slipstream gateway", docs_url=None, redoc_url=None, openapi_url=None)
    gateway = _Gateway(desk, max_body)
    app.add_route("/v1/completions", _guarded(gateway.complete), methods=["POST"])
    app.add_route("/v1/chat/completions", _guarded(gateway.chat), methods=["POST"])
    app.add_route("/v1/models", _guarded(gateway.models), methods=["GET"])
    app.add_route("/health", _guarded(gateway.health), methods=["GET"])
    app.add_exception_handler(HTTPException, _no_such_path)
    return app


class _Gateway:
    def __init__(self, desk: Desk, max_body: int) -> None:
        self._desk = desk
        self._max_body = max_body
        self._leftovers: set[asyncio.Task[Answered]] = set()

    async def complete(self, request: Request) -> Response:
        ask = read_ask(CompletionAsk, await self._body(request))
        served = self._desk.find(ask.model)
        prompt: str | tuple[int, ...]
        if isinstance(ask.prompt, str):
            prompt = ask.prompt
        elif len(ask.prompt) == 1 and isinstance(ask.prompt[0], str):
            prompt = ask.prompt[0]
        elif ask.prompt and isinstance(ask.prompt[0], str):
            raise invalid("prompt: one prompt per request", "prompt")
        else:
            prompt = tuple(int(token) for token in ask.prompt)
        call = Call(served, read_caller(request.headers), prompt, ask.sampling(served.policy, ask.max_tokens), ask.stops)
        return await self._answer(call, ask, chat=False)

    async def chat(self, request: Request) -> Response:
        ask = read_ask(ChatAsk, await self._body(request))
        served = self._desk.find(ask.model)
        call = Call(served, read_caller(request.headers), ask.lines, ask.sampling(served.policy, ask.max_tokens), ask.stops)
        return await self._answer(call, ask, chat=True)

    async def models(self, _request: Request) -> Response:
        data: list[Json] = []
        for name, served in sorted(self._desk.served.items()):
            rollout = served.router.rollout
            data.append(
                {
                    "id": name,
                    "object": "model",
                    "created": int(rollout.at.timestamp()) if rollout else 0,
                    "owned_by": "slipstream",
                    "slipstream": {"champion": rollout.champion if rollout else None, "versions": sorted(served.swap.ready)},
                }
            )
        return _json({"object": "list", "data": data})

    async def health(self, _request: Request) -> Response:
        """Ready when each policy's champion is loaded, which includes that it answered its probe."""
        policies: Json = {}
        ready = True
        for name, served in sorted(self._desk.served.items()):
            rollout = served.router.rollout
            champion = rollout.champion if rollout is not None and rollout.champion in served.swap.ready else None
            ready = ready and champion is not None
            policies[name] = {
                "version": champion,
                "candidate": rollout.candidate if rollout else None,
                "share": rollout.share if rollout else 0.0,
                "revision": rollout.revision if rollout else None,
                "versions": sorted(served.swap.ready),
            }
        return _json({"status": "ready" if ready else "starting", "policies": policies}, 200 if ready else 503)

    async def _body(self, request: Request) -> bytes:
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._max_body:
            raise invalid(f"body: more than {self._max_body} bytes", code="too_large", status=413)
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self._max_body:
                raise invalid(f"body: more than {self._max_body} bytes", code="too_large", status=413)
            parts.append(part)
        return b"".join(parts)

    async def _answer(self, call: Call, ask: CompletionAsk | ChatAsk, chat: bool) -> Response:
        if ask.stream:
            tokens = Tokens()
            running = await self._desk.begin(call, tokens.put)
            running.future.add_done_callback(lambda _: tokens.put(None))
            return StreamingResponse(self._events(running, tokens, chat), media_type="text/event-stream", headers=_headers(running))
        running = await self._desk.begin(call)
        answered = await self._desk.finish(running)
        answer = answered.answer
        if answer.finish == "error":
            return _json(_failure(running), 500, _headers(running))
        texts = None
        if ask.logprobs not in (None, False):
            texts = [call.served.engine.decode(answer.version, [token]) for token in answer.completion_ids]
        choice = (chat_choice if chat else completion_choice)(answer, texts)
        if ask.return_token_ids:
            choice |= {"token_ids": answer.completion_ids, "prompt_token_ids": running.prompt_ids}
        body = _envelope(running, "chat.completion" if chat else "text_completion") | {
            "choices": [choice],
            "usage": usage(len(running.prompt_ids), len(answer.completion_ids)),
            "slipstream": _about(answered),
        }
        return _json(body, 200, _headers(running))

    async def _events(self, running: Running, tokens: Tokens, chat: bool) -> AsyncIterator[bytes]:
        """Server-sent events. A client that goes away ends its answer; what was sampled until then is captured, once."""
        call = running.call
        finishing: asyncio.Task[Answered] | None = None
        envelope = _envelope(running, "chat.completion.chunk" if chat else "text_completion")
        pieces = Pieces(
            lambda ids: call.served.engine.decode(running.route.version, ids), (*call.served.policy.template.stop, *call.stop)
        )

        def chunk(text: str, reason: str | None, **more: object) -> bytes:
            said: Json = {"delta": {"content": text}} if chat else {"text": text}
            return _event(envelope | {"choices": [{"index": 0, **said, "logprobs": None, "finish_reason": reason}], **more})

        try:
            if chat:
                start: Json = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
                yield _event(envelope | {"choices": [start]})
            async for token in tokens:
                if text := pieces.add(token):
                    yield chunk(text, None)
            finishing = asyncio.create_task(self._desk.finish(running))
            answered = await asyncio.shield(finishing)
            answer = answered.answer
            if answer.finish == "error":
                yield _event(_failure(running))
                return
            if rest := pieces.rest(answer.text):
                yield chunk(rest, None)
            counts = usage(len(running.prompt_ids), len(answer.completion_ids))
            yield chunk("", finish_reason(answer.finish), usage=counts, slipstream=_about(answered))
            yield b"data: [DONE]\n\n"
        finally:
            if finishing is None:
                running.abort.set()
                finishing = asyncio.create_task(self._desk.finish(running))
            if not finishing.done():
                self._leftovers.add(finishing)
                finishing.add_done_callback(self._leftovers.discard)


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except Refused as refused:
            headers = {"retry-after": "1"} if refused.status in (429, 503) else None
            return _json(refused.body, refused.status, headers)
        except Exception:
            logger.exception("a request to %s failed", request.url.path)
            return _json({"error": {"message": "internal error", "type": "server_error", "param": None, "code": None}}, 500)

    return guarded


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _json(invalid(f"{request.method} {request.url.path}: {str(error).partition(': ')[2] or error}").body, status)


def _envelope(running: Running, kind: str) -> Json:
    return {
        "id": f"{'chatcmpl' if kind.startswith('chat') else 'cmpl'}-{running.turn_id}",
        "object": kind,
        "created": int(running.started_at.timestamp()),
        "model": running.call.served.policy.name,
    }


def _about(answered: Answered) -> Json:
    running, answer = answered.running, answered.answer
    return {
        "turn_id": running.turn_id,
        "episode_id": running.episode_id,
        "version": answer.version,
        "arm": running.route.arm,
        "finish": answer.finish,
        "silent": answer.finish == "silence",
        "captured": answered.captured,
    }


def _headers(running: Running) -> dict[str, str]:
    return {"X-Turn-Id": running.turn_id, "X-Episode-Id": running.episode_id, "X-Policy-Version": running.route.version}


def _failure(running: Running) -> Json:
    message = f"version {running.route.version} could not answer: its numbers went bad"
    return {"error": {"message": message, "type": "server_error", "param": None, "code": "engine_error"}}


def _json(body: Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body, allow_nan=False, ensure_ascii=False), status, headers, "application/json")


def _event(body: Json) -> bytes:
    return b"data: " + json.dumps(body, allow_nan=False, ensure_ascii=False).encode() + b"\n\n"
