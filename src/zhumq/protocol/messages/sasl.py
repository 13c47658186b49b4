"""Authentication: SaslHandshake, SaslAuthenticate, and Describe/AlterUserScramCredentials."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


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


class UserName(Message):
    name: str = ""


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field()


class CredentialInfo(Message):
    mechanism: int8 = 0
    iterations: int32 = 0


class DescribeUserScramCredentialsResult(Message):
    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = field()


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = field()


class ScramCredentialDeletion(Message):
    name: str = ""
    mechanism: int8 = 0


class ScramCredentialUpsertion(Message):
    name: str = ""
    mechanism: int8 = 0
    iterations: int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


class AlterUserScramCredentialsResult(Message):
    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = field()
