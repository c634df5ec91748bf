"""Where a service listens, and with what a client may ask."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:7420"


@dataclass(frozen=True)
class Address:
    """`path`: of a Unix socket; `host` and `port` are then those of the header `Host`."""

    scheme: str
    host: str
    port: int
    path: str | None = None
    prefix: str = ""

    @property
    def host_header(self) -> str:
        if self.path is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == (443 if self.scheme == "https" else 80)
        return host if is_usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path is not None else f"{self.scheme}://{self.host_header}{self.prefix}"


@dataclass(frozen=True)
class Secret:
    """A token. It is shown nowhere."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "<token>"


def parse_address(url: str | None) -> Address:
    """`http://…`, `https://…`, `unix:/path` or an absolute path. Absent: `CORRAL_URL`, or the usual address."""
    text = url if url is not None else os.environ.get("CORRAL_URL") or DEFAULT_URL
    if text.startswith("unix:") or text.startswith("/"):
        path = text.removeprefix("unix:")
        if path.startswith("//"):
            path = path.removeprefix("//")
        if not path.startswith("/"):
            raise ValueError("the path of a Unix socket must be absolute: unix:/run/corral.sock")
        return Address("http", "localhost", 80, path)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the URL of the service cannot be read") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("the URL must have no user, password, query or fragment: give the token as `token`")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("the URL must be http://HOST:PORT, https://HOST or unix:/PATH")
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", host) or not re.fullmatch(r"[\w.~/-]*", parts.path, re.ASCII):
        raise ValueError("the URL has a character that no URL of a service has")
    return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), None, parts.path.rstrip("/"))


def parse_token(token: str | None) -> Secret | None:
    """Absent: `CORRAL_TOKEN`. The error does not show it."""
    text = token if token is not None else os.environ.get("CORRAL_TOKEN") or None
    if text is None:
        return None
    if not re.fullmatch(r"[\x21-\x7e]{1,1000}", text):
        raise ValueError("the token has a character that no token has, such as a line break")
    return Secret(text)
