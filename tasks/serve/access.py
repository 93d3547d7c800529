"""Check the `Host` header, the API key and the length of requests."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse

from oneclass.tasks.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PROBES = ("/live", "/ready")  # asked by machines that know neither name nor key, and told one word
MAX_BODY_BYTES = 2_000_000
HASH = re.compile(r"[0-9a-f]{64}(\s|$)")


@dataclass(frozen=True)
class AccessRules:
    """What a request must have to be answered.

    Attributes:
        hosts: the names that its `Host` header may have, against pages that resolve a name of theirs to this server.
        key_hashes: SHA-256 of the keys, one of which it must send as `Authorization: Bearer KEY`; none for everybody.
    """

    hosts: frozenset[str] = frozenset(LOOPBACK)
    key_hashes: tuple[bytes, ...] = ()


def load_key_hashes(file: str | Path) -> tuple[bytes, ...]:
    """Read the SHA-256 hashes of the keys, one per line in hexadecimal; what follows a hash is a note.

    Raises:
        InputError: the file cannot be read, has no hash, or has another line.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--api-key-file {file}: cannot be read ({error}).") from error
    keys = {number: line for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")}
    for number in (number for number, line in keys.items() if not HASH.match(line)):
        where = f"--api-key-file {file}, line {number}"
        raise InputError(
            f"{where}: does not begin with a SHA-256 in 64 hexadecimal digits, such as `sha256sum` prints."
        )
    if not keys:
        raise InputError(f"--api-key-file {file}: has no key, so nobody could ask.")
    return tuple(line[:64].encode() for line in keys.values())


class AccessControl:
    """ASGI middleware that refuses requests which break the rules."""

    def __init__(self, app: Any, rules: AccessRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] == "http" and scope["path"] not in PROBES:
            if (refusal := self._refuse(dict(scope["headers"]))) is not None:
                await refusal(scope, receive, send)
                return
            receive = _limit_body(receive)
        await self._app(scope, receive, send)

    def _refuse(self, headers: dict[bytes, bytes]) -> JSONResponse | None:
        """Return the answer to a request without a name of this server or without a key."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name not in self._rules.hosts:
            detail = f"the Host header {name!r} is not a name of this server; see --host-names"
            return JSONResponse({"detail": detail}, 421)
        if self._rules.key_hashes and not _has_key(headers.get(b"authorization", b""), self._rules.key_hashes):
            detail = "send a key as `Authorization: Bearer KEY`"
            return JSONResponse({"detail": detail}, 401, headers={"www-authenticate": "Bearer"})
        return None


def _limit_body(receive: Any) -> Any:
    """Return `receive` that raises `HTTPException` 413 once too much of a body has come, whatever the headers say."""
    received = 0

    async def receive_limited() -> Any:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES:,} bytes; send fewer queries in each")
        return message

    return receive_limited


def _has_key(authorization: bytes, key_hashes: Iterable[bytes]) -> bool:
    """Compare a key with all hashes, in a time that does not depend on the key."""
    scheme, _, key = authorization.partition(b" ")
    digest = hashlib.sha256(key.strip()).hexdigest().encode()
    matches = [hmac.compare_digest(digest, stored) for stored in key_hashes]
    return scheme.lower() == b"bearer" and any(matches)
