"""DescribeUserScramCredentials and AlterUserScramCredentials: the users of PLAIN and SCRAM."""

from collections import Counter

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.users import (
    Alteration,
    CredentialRefused,
    Deletion,
    Upsertion,
    check_alterations,
    plan_credentials,
)
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.scram_server import credential_of


class ScramCredentialsHandler:
    """Answers what credentials users have, and changes them. It never tells a salt or a key."""

    def __init__(self, store: MetadataStore, metadata_client: MetadataClient) -> None:
        self._store = store
        self._metadata_client = metadata_client

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

    def describe(
        self, _context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        users = self._store.image.security.users
        names = Counter(each.name for each in request.users or ()) or dict.fromkeys(users, 1)
        return DescribeUserScramCredentialsResponse(
            error_message=None,
            results=[self._described(name, count) for name, count in names.items()],
        )

    def _described(self, name: str, count: int) -> DescribeUserScramCredentialsResult:
        credentials = self._store.image.security.users.get(name)
        if count > 1:
            return DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.DUPLICATE_RESOURCE,
                error_message="Cannot describe SCRAM credentials for the same user twice in a single"
                f" request: {name}",
            )
        if credentials is None:
            return DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"Attempt to describe a user credential that does not exist: {name}",
            )
        return DescribeUserScramCredentialsResult(
            user=name,
            error_message=None,
            credential_infos=[
                CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
                for mechanism, credential in sorted(credentials.items())
            ],
        )

    async def alter(
        self, _context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        alterations: list[Alteration] = [
            *(Deletion(user=each.name, mechanism=each.mechanism) for each in request.deletions),
            *(
                Upsertion(
                    user=each.name,
                    mechanism=each.mechanism,
                    iterations=each.iterations,
                    salt=bytes(each.salt),
                    salted_password=bytes(each.salted_password),
                )
                for each in request.upsertions
            ),
        ]
        checked = check_alterations(self._store.image.security, alterations)
        accepted: dict[tuple[str, ScramMechanism], ScramCredential | None] = {}
        results = []
        for user, outcome in checked.items():
            result = AlterUserScramCredentialsResult(user=user, error_message=None)
            if isinstance(outcome, CredentialRefused):
                result.error_code, result.error_message = outcome.code, outcome.message
            else:
                accepted[user, ScramMechanism(outcome.mechanism)] = _credential_of(outcome)
            results.append(result)
        await self._metadata_client.change_security(
            lambda security: plan_credentials(security, accepted)
        )
        return AlterUserScramCredentialsResponse(results=results)


def _credential_of(alteration: Alteration) -> ScramCredential | None:
    if isinstance(alteration, Deletion):
        return None
    return credential_of(
        ScramMechanism(alteration.mechanism),
        alteration.salted_password,
        alteration.salt,
        alteration.iterations,
    )
