"""Who may read the catalog: on this machine, by loopback names alone; from elsewhere, with a token.

A page of another site can have a browser ask 127.0.0.1 under a name of that site's (DNS rebinding), and read
the answer. So a server on loopback answers to loopback names only.
"""

from __future__ import annotations

import hmac
import ipaddress
from hashlib import sha256

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "streaming_sink"
SIGN_IN = "/sign-in"
_LEAST_TOKEN = 16
_MOST_FORM_BYTES = 4096
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_FORM = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in</title>
<p>This catalog needs its token, which its operator knows.
<form method="post" action="/sign-in"><input type="password" name="token" autofocus required
aria-label="Token"> <button>Sign in</button></form></html>"""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback: localhost, 127.0.0.0/8 or ::1."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_access(host: str, token: str | None) -> None:
    """ValueError for a server that others could read without a token, or with one that can be guessed."""
    if token is not None and len(token) < _LEAST_TOKEN:
        raise ValueError(f"the token must have {_LEAST_TOKEN} characters or more")
    if token is None and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines, so a token is needed: set STREAMING_SINK_TOKEN (or"
            " give token=), or serve on 127.0.0.1"
        )


class Access:
    """Refuses requests that may not read, and sets the headers of every answer, also of one that fails. HEAD
    is asked as GET. `host` is what the server listens on; ValueError as by `check_access`.
    """

    def __init__(self, app: ASGIApp, *, host: str, token: str | None) -> None:
        check_access(host, token)
        self._app, self._own_names = app, is_loopback(host)
        self._digest = None if token is None else _digest(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = await self._refusal(Request(scope, receive))
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    async def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that may not read, or that signs in; None for one that may."""
        if self._own_names and not is_loopback(_name(request.headers)):
            return _refused(403, "this server answers to localhost and 127.0.0.1 alone; ask it by that name")
        if self._digest is None:
            return None
        if request.url.path == SIGN_IN and request.method == "POST":
            return await self._sign_in(request)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._fits(_digest(given.strip())):
            return None
        if self._fits(request.cookies.get(COOKIE, "")):
            return None
        if request.url.path == "/":
            page = {"content-security-policy": "default-src 'none'; form-action 'self'"}
            return HTMLResponse(_FORM, 401, {**page, "www-authenticate": "Bearer"})
        return _refused(401, "a token is needed: send the header Authorization: Bearer TOKEN")

    async def _sign_in(self, request: Request) -> Response:
        """Put a digest of the token into a cookie, so that it is in no URL, and so in no log."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_FORM_BYTES:
                return _refused(413, "the form is larger than a token; send token=TOKEN")
        from urllib.parse import parse_qs

        given = _digest(parse_qs(body.decode("latin-1")).get("token", [""])[0])
        if not self._fits(given):
            return _refused(401, "this is not the token; go back, and try again")
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=secure)
        return answer

    def _fits(self, given: str) -> bool:
        assert self._digest is not None
        return hmac.compare_digest(given.encode(), self._digest.encode())


def _digest(token: str) -> str:
    return sha256(b"streaming-sink catalog\0" + token.encode(errors="replace")).hexdigest()


def _name(headers: Headers) -> str:
    """Return the Host header without its port."""
    host = headers.get("host", "")
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)
