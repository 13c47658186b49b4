"""TLS contexts of a listener and of connections to other brokers, renewed when files of theirs change."""

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.net.tls_config import (
    TLS_1_2,
    TLS_1_2_SUITES,
    TLS_1_3,
    ClientAuth,
    TlsConfig,
)
from zhumq.net.tls_material import TlsMaterial, read_material, stores_of

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0  # between two looks at the files
# Forward secrecy and authenticated encryption only.
DEFAULT_SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:!aNULL"
_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}

# Modification time, size and inode of each file; None for one that is missing.
_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContexts:
    """The contexts made from one reading of the files."""

    material: TlsMaterial
    server: ssl.SSLContext
    # To other brokers; None without a trust store, which would have to verify them.
    client: ssl.SSLContext | None


class TlsSource:
    """The current contexts of one configuration. A broken replacement of a file changes nothing.

    Threads may share it: gRPC asks from threads of its own.
    """

    def __init__(
        self,
        name: str,
        config: TlsConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises SettingInvalid. `name` is the listener's, for messages."""
        self.config = config
        self._name = name
        self._clock = clock
        self._now = now
        self._files = stores_of(config)
        self._lock = threading.Lock()
        self._stamp = _stamp(self._files)
        self._contexts = _make_contexts(name, config, now())
        self._check_at = clock() + CHECK_SECONDS

    def current(self) -> TlsContexts:
        """The contexts for a new connection."""
        if self._clock() >= self._check_at:
            with self._lock:
                self._check_at = self._clock() + CHECK_SECONDS
                self._reload()
        return self._contexts

    def _reload(self) -> None:
        stamp = _stamp(self._files)
        if stamp == self._stamp:
            return
        # Remembered even if the files are broken, so that this is logged once.
        self._stamp = stamp
        try:
            self._contexts = _make_contexts(self._name, self.config, self._now())
        except SettingInvalid as reason:
            logger.error(  # noqa: TRY400 (the reason is all that an operator needs)
                "the changed TLS files of listener %s are not used, the earlier ones stay: %s",
                self._name,
                reason,
            )
        else:
            logger.info(
                "listener %s uses its changed TLS files; the certificate is %s",
                self._name,
                self._contexts.material.leaf.subject,
            )


def _stamp(files: list[Path]) -> _Stamp:
    def stamp_of(file: Path) -> tuple[int, int, int] | None:
        try:
            status = file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    return tuple(stamp_of(file) for file in files)


def _make_contexts(name: str, config: TlsConfig, now: float) -> TlsContexts:
    try:
        material = read_material(config)
        _check_dates(config, material, now)
        _check_trust(config, material)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _set_up(server, config, material)
        server.verify_mode = _VERIFY_MODES[config.client_auth]
        client = None
        if material.trusted:
            client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            _set_up(client, config, material)
            client.check_hostname = config.checks_host_names
    except SettingInvalid as reason:
        raise SettingInvalid(f"TLS of listener {name}: {reason}") from None
    return TlsContexts(material=material, server=server, client=client)


def _check_dates(config: TlsConfig, material: TlsMaterial, now: float) -> None:
    store, leaf = config.key_store, material.leaf
    place = store.location or store.setting
    if now > leaf.not_after:
        raise SettingInvalid(
            f"the certificate {leaf.subject} in {place} expired on {_date(leaf.not_after)}"
        )
    if now < leaf.not_before:
        raise SettingInvalid(
            f"the certificate {leaf.subject} in {place} is not valid before"
            f" {_date(leaf.not_before)}: check it, and the clock of this machine"
        )


def _check_trust(config: TlsConfig, material: TlsMaterial) -> None:
    if config.client_auth is not ClientAuth.NONE and not material.trusted:
        raise SettingInvalid(
            f"ssl.client.auth={config.client_auth} needs the certificates to trust: set"
            " ssl.truststore.location"
        )


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _set_up(context: ssl.SSLContext, config: TlsConfig, material: TlsMaterial) -> None:
    versions = [_VERSIONS[each] for each in config.usable_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    named = [TLS_1_2_SUITES[suite] for suite in config.cipher_suites if suite in TLS_1_2_SUITES]
    context.set_ciphers(":".join(named) if named else DEFAULT_SUITES)
    context.options |= (
        ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    place = config.key_store.location or config.key_store.setting
    # The library takes keys from files only, and this one is in memory.
    with _memory_file(material.key + material.certificate_chain) as path:
        try:
            context.load_cert_chain(path, password=lambda: material.key_password)
        except ssl.SSLError as error:
            raise SettingInvalid(f"{place}: {_why(error)}") from None
    if material.trusted:
        try:
            context.load_verify_locations(cadata=material.trusted.decode())
        except ssl.SSLError as error:
            trust_store = config.trust_store
            raise SettingInvalid(
                f"{trust_store.location or trust_store.setting}: {_why(error)}"
            ) from None


def _why(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    if error.reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", "CIPHERFINAL_ERROR", None):
        return "the key cannot be read: is ssl.key.password right?"
    return f"it cannot be used: {(error.reason or str(error)).replace('_', ' ').lower()}"


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """The path of a file that is only in memory."""
    descriptor = os.memfd_create("zhumq-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
