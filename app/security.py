"""Who may talk to a server that has no accounts: this machine's programs, and pages that this server sent.

Other web pages open in the same browser may not. They can reach 127.0.0.1 in two ways: by posting across sites (refused
by ``Sec-Fetch-Site``, and by ``Origin`` where a browser sends no fetch metadata) and by pointing a name of their own at
127.0.0.1 (DNS rebinding: refused by the ``Host`` header, which then carries that name).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import body

SAFE = ("GET", "HEAD", "OPTIONS")
PLOTLY_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='"
)
"""Plotly adds a style element without text, which it then fills by rules, and (7.1) one for its maps. These are the
hashes of the two texts: nothing else may be styled inline."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {PLOTLY_STYLES}",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def refusal(method: str, headers: Headers, hosts: frozenset[str]) -> str | None:
    """Why a request is refused, or None."""
    host = headers.get("host", "")
    if _name(host) not in hosts:
        return f"This server answers to {', '.join(sorted(hosts))} only: open it by one of these names."
    if method in SAFE:
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    foreign = site not in ("same-origin", "none") if site is not None else _foreign(origin, host)
    return "Another web page may not change anything here: use popserve's own page." if foreign else None


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _foreign(origin: str | None, host: str) -> bool:
    return origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower())


class Guard:
    """ASGI middleware: refuses foreign and oversized requests and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], max_body: int) -> None:
        self.app = app
        self.hosts = hosts
        self.max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        reason = refusal(scope["method"], headers, self.hosts)
        if reason is not None:
            answer = JSONResponse(body(403, reason, "forbidden"), 403)
        elif (length := headers.get("content-length", "")).isdecimal() and int(length[:18]) > self.max_body:
            reason = f"A request holds at most {self.max_body // 2**20} MiB."
            answer = JSONResponse(body(413, reason, "too_large"), 413)
        else:
            await self.app(scope, receive, with_headers)
            return
        await answer(scope, receive, with_headers)
