"""`import zhumq`: its names, its version, and what is there without the extras."""

import importlib.metadata
import subprocess
import sys

import pytest

import zhumq

# As on a machine where these were never installed.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
SECONDS_MAX = 60


def run_without(packages: tuple[str, ...], code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(packages=packages) + code],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert zhumq.__version__ == importlib.metadata.version("zhumq")


@pytest.mark.parametrize("packages", [("grpc", "google", "kazoo", "pyspark"), ("google",)])
def test_everything_can_be_imported_without_the_extras(packages: tuple[str, ...]) -> None:
    code = """
from zhumq import *
print(Admin.__module__, Producer.__module__)
try:
    PushConsumer("t", group="g")
except Exception as error:
    print(type(error).__name__, error)
"""
    lines = run_without(packages, code).splitlines()
    assert lines[0] == "zhumq.admin.client zhumq.client.producer"
    assert lines[1].startswith("PushUnavailable ")
    assert lines[1].endswith("pip install 'zhumq[push]'")


def test_a_broker_without_protobuf_names_the_package_and_its_extra() -> None:
    """`google is not installed` is nothing that a person could install."""
    code = """
import logging, sys
from zhumq.testing.broker import broker
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
with broker() as running:
    print("push:", running.push)
"""
    printed = run_without(("google",), code)
    assert "push is off because protobuf is not installed: pip install 'zhumq[push]'" in printed
    assert "push: off" in printed


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Prducer'"):
        _ = zhumq.Prducer
