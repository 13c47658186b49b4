"""Errors of the schema registry: each with the error code that clients of Confluent's registry know."""

from typing import ClassVar

from zhumq.model.errors import ZhumqError


class SchemaError(ZhumqError):
    """A request to the registry failed. The first three digits of the error code are the status of HTTP."""

    error_code: ClassVar[int] = 422


class NotDecoded(SchemaError):
    """A message is not what its schema says, or cannot be shown."""


class NotEncoded(SchemaError):
    """A value is not as its schema says, so it cannot be written with it."""


class SubjectNotFound(SchemaError):
    """There is no such subject, or all its versions are deleted."""

    error_code = 40401

    def __init__(self, subject: str) -> None:
        super().__init__(f"there is no subject {subject!r}")


class VersionNotFound(SchemaError):
    """The subject has no such version."""

    error_code = 40402

    def __init__(self, version: object) -> None:
        super().__init__(f"there is no version {version}")


class SchemaNotFound(SchemaError):
    """There is no such schema."""

    error_code = 40403


class SubjectSoftDeleted(SchemaError):
    """The subject is deleted already."""

    error_code = 40404

    def __init__(self, subject: str) -> None:
        super().__init__(f"the subject {subject!r} is deleted: permanent=true removes it for good")


class SubjectNotSoftDeleted(SchemaError):
    """Only a subject that is deleted can be removed for good."""

    error_code = 40405

    def __init__(self, subject: str) -> None:
        super().__init__(f"delete the subject {subject!r} first, then again with permanent=true")


class VersionSoftDeleted(SchemaError):
    """The version is deleted already."""

    error_code = 40406

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"version {version} of {subject!r} is deleted: permanent=true removes it for good"
        )


class VersionNotSoftDeleted(SchemaError):
    """Only a version that is deleted can be removed for good."""

    error_code = 40407

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"delete version {version} of {subject!r} first, then again with permanent=true"
        )


class LevelNotConfigured(SchemaError):
    """The subject has no compatibility level of its own."""

    error_code = 40408

    def __init__(self, subject: str) -> None:
        super().__init__(f"the subject {subject!r} has no compatibility level of its own")


class ModeNotConfigured(SchemaError):
    """The subject has no mode of its own."""

    error_code = 40409

    def __init__(self, subject: str) -> None:
        super().__init__(f"the subject {subject!r} has no mode of its own")


class Incompatible(SchemaError):
    """The compatibility level of the subject does not permit this schema. `reasons` says where the two differ."""

    error_code = 40901

    def __init__(self, subject: str, reasons: list[str]) -> None:
        super().__init__(
            f"the schema is incompatible with an earlier one of {subject!r}: {'; '.join(reasons)}"
        )
        self.reasons = reasons


class InvalidSchema(SchemaError):
    """The text is no schema of its type, or what it refers to is missing."""

    error_code = 42201


class InvalidVersion(SchemaError):
    """It is no version."""

    error_code = 42202

    def __init__(self, version: str) -> None:
        super().__init__(f"a version is a number from 1 on or `latest`, not {version[:40]!r}")


class InvalidLevel(SchemaError):
    """It is no compatibility level."""

    error_code = 42203


class InvalidMode(SchemaError):
    """It is no mode."""

    error_code = 42204


class NotPermitted(SchemaError):
    """The mode of the subject does not permit this."""

    error_code = 42205


class ReferenceExists(SchemaError):
    """Another schema refers to this one."""

    error_code = 42206

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(f"other schemas refer to version {version} of {subject!r}")


class IdTaken(SchemaError):
    """The id that an imported schema shall have is that of another schema."""

    error_code = 42207


class InvalidSubject(SchemaError):
    """The name cannot be that of a subject."""

    error_code = 42208


class SchemaTooLarge(SchemaError):
    """The schema does not fit into a message of the log."""

    error_code = 42209
