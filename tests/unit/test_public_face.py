"""`import zhumq`: its names, its version, and what is there without the extras."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import zhumq
import zhumq.aio

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


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "msgspec"])
def test_the_rest_api_without_its_packages_names_their_extra(package: str) -> None:
    code = """
from zhumq.cli.main import run
import contextlib, io
with contextlib.redirect_stderr(io.StringIO()) as written:
    code = run(["web", "--listen", "127.0.0.1:0"])
print(code, written.getvalue(), end="")
"""
    expected = f"1 zhumq: `zhumq web` needs {package}: pip install 'zhumq[console]'\n"
    assert run_without((package,), code) == expected


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Prducer'"):
        _ = zhumq.Prducer


@pytest.mark.parametrize("module", [zhumq, zhumq.aio], ids=lambda module: module.__name__)
def test_every_public_name_is_documented_and_nothing_else_is_public(module: ModuleType) -> None:
    for name in module.__all__:
        assert getattr(module, name).__doc__, name
    # What a program finds with dir(): the names, and modules that were imported below the package.
    found = {name for name in dir(module) if not name.startswith("_")}
    modules = {name for name in found if isinstance(getattr(module, name), ModuleType)}
    assert found - modules - {"Any", "TYPE_CHECKING", "import_module"} == set(module.__all__)

    text = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text()
    prefix = module.__name__
    names = text.partition("## Names")[2].partition("\n## ")[0]
    documented = set(re.findall(rf"^\| `{re.escape(prefix)}\.(\w+)` \|", names, re.MULTILINE))
    assert documented == set(module.__all__)


def test_the_async_names_can_be_imported_without_the_extras() -> None:
    code = """
from zhumq.aio import *
print(Producer.__module__, Consumer.__module__, Worker.__module__)
try:
    PushConsumer("t", group="g")
except Exception as error:
    print(type(error).__name__, error)
try:
    import zhumq.aio
    zhumq.aio.Prducer
except AttributeError as error:
    print(error)
"""
    packages = ("grpc", "google", "fastavro", "opentelemetry", "typing_extensions")
    lines = run_without(packages, code).splitlines()
    assert lines[0].split() == [
        "zhumq.client.async_producer", "zhumq.client.async_consumer", "zhumq.client.async_worker",
    ]  # fmt: skip
    assert lines[1].endswith("pip install 'zhumq[push]'")
    assert lines[2] == "module 'zhumq.aio' has no attribute 'Prducer'"
