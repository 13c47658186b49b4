"""Authentication: SaslHandshake and SaslAuthenticate."""

from zhumq.protocol.schema import Message, field, int16, int64


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = ""


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int16 = 0
    mechanisms: list[str] = field()


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = field(versions="1+", default=0)
