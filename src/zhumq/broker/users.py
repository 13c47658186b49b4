"""Users as a broker stores them: the first one at its start, and those of a cluster that is stopped."""

import contextlib
import secrets
from collections.abc import AsyncIterator

from zhumq.broker.config import BrokerConfig
from zhumq.broker.wiring.cluster_member import open_ensemble
from zhumq.cluster.local_store import LocalStore
from zhumq.cluster.metadata_client import change_security
from zhumq.cluster.store import MetadataStore
from zhumq.host.disk import SystemDisk
from zhumq.metadata.users import plan_credentials
from zhumq.model.errors import SettingInvalid, ZhumqError
from zhumq.model.password import Password
from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.new_user import problem_with, salt_password
from zhumq.security.scram_server import SALT_BYTES, credential_of
from zhumq.storage.data_folder import lock_data_dir


class UserProblem(ZhumqError):
    """A user cannot be created, changed or deleted; the message says why."""


class StoredUsers:
    """The users in a metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def names(self) -> dict[str, tuple[str, ...]]:
        """The users by name, with their mechanisms."""
        users = self._store.image.security.users
        return {
            name: tuple(mechanism.sasl_name for mechanism in sorted(users[name]))
            for name in sorted(users)
        }

    async def create(self, name: str, password: Password) -> None:
        if name in self._store.image.security.users:
            raise UserProblem(f"there is a user {name!r} already")
        await self._write(name, password)

    async def set_password(self, name: str, password: Password) -> None:
        self._check_exists(name)
        await self._write(name, password)

    async def delete(self, name: str) -> None:
        self._check_exists(name)
        gone: dict[tuple[str, ScramMechanism], ScramCredential | None] = {
            (name, mechanism): None for mechanism in ScramMechanism
        }
        await change_security(self._store, lambda image: plan_credentials(image, gone))

    async def _write(self, name: str, password: Password) -> None:
        if problem := problem_with(name, password.reveal()):
            raise UserProblem(f"cannot set the password of {name!r}: {problem}")
        salts = {mechanism: secrets.token_bytes(SALT_BYTES) for mechanism in ScramMechanism}
        credentials: dict[tuple[str, ScramMechanism], ScramCredential | None] = {
            (name, each.mechanism): credential_of(
                each.mechanism, each.salted, each.salt, each.iterations
            )
            for each in salt_password(password.reveal(), salts)
        }
        await change_security(self._store, lambda image: plan_credentials(image, credentials))

    def _check_exists(self, name: str) -> None:
        if name not in self._store.image.security.users:
            raise UserProblem(f"there is no user {name!r}")


@contextlib.asynccontextmanager
async def stored_users(config: BrokerConfig) -> AsyncIterator[StoredUsers]:
    """The users of a data folder whose broker is stopped, or of a cluster on ZooKeeper.

    Raises DataDirUnusable if a broker uses the folder, and StoreUnusable.
    """
    disk = SystemDisk()
    async with contextlib.AsyncExitStack() as parts:
        store: MetadataStore
        if config.zookeeper is not None:
            ensemble = await open_ensemble(config, disk)
            parts.push_async_callback(ensemble.close)
            store = ensemble
        else:
            meta, lock = lock_data_dir(str(config.data_dir), config.broker_id, None, disk)
            parts.callback(lock.release)
            local = LocalStore.open(
                config.data_dir, disk=disk, cluster_id=meta.cluster_id, broker_id=config.broker_id
            )
            parts.push_async_callback(local.close)
            store = local
        yield StoredUsers(store)


async def ensure_admin(users: StoredUsers, name: str, password: Password | None) -> bool:
    """Create the user of --admin-user unless it exists. Returns whether it was created."""
    if name in users.names():
        return False
    if not password:
        raise SettingInvalid(
            f"--admin-user {name}: there is no such user yet, so it needs a password:"
            " give --admin-password-file FILE or the variable ZHUMQ_ADMIN_PASSWORD"
        )
    await users.create(name, password)
    return True
