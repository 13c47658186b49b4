"""The compose files, the systemd units and the Kubernetes manifests: valid, careful, and their command lines run for real.

No container is built here. Each command line is taken from its file and run with this Python, with free ports, a temporary
data folder, and this machine in place of the names of other machines.
"""

import contextlib
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from zhumq.cluster.dev_zookeeper import DevZookeeper
from zhumq.host.ports import HOST, free_ports

PACKAGING = Path(__file__).parents[2] / "packaging"
SECONDS_MAX = 100.0
COMPOSE = ("one-node", "three-nodes")
NAMES = re.compile(r"\b(?:broker|zookeeper)\d?(?=:\d)|\bzhumq(?=:9092)|zhumq-\d\.[\w.-]+(?=:\d)")
PORTS = re.compile(r"(?<=:)(?:9\d9[2-5]|9080|8080)\b")
WATERMARKS = ["--set=disk.watermark.refused.percent=100"]


def compose(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PACKAGING / "compose" / f"{name}.yaml").read_text())
    return loaded


def manifests() -> list[dict[str, Any]]:
    files = sorted((PACKAGING / "kubernetes").glob("*.yaml"))
    loaded = [each for path in files for each in yaml.safe_load_all(path.read_text())]
    return [each for each in loaded if each["kind"] != "Kustomization"]


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = (
        each for each in manifests() if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return found


def container(kind: str, name: str) -> dict[str, Any]:
    (found,) = manifest(kind, name)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def image_arguments() -> list[str]:
    text = (PACKAGING / "Containerfile").read_text()
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    return list(yaml.safe_load(command))


def unit_arguments(name: str) -> list[str]:
    text = (PACKAGING / "systemd" / name).read_text()
    (command,) = re.findall(r"^ExecStart=/opt/zhumq/bin/zhumq (.*)$", text, re.MULTILINE)
    return shlex.split(command)


def pod_arguments(index: int, zookeeper: str) -> list[str]:
    """As the kubelet fills them in."""
    values = {"POD_INDEX": str(index), "POD_NAME": f"zhumq-{index}", "POD_NAMESPACE": "default"}
    values["ZOOKEEPER"] = zookeeper
    pod = container("StatefulSet", "zhumq")
    assert {each["name"] for each in pod["env"]} == values.keys()
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], each) for each in pod["args"]]


class Here:
    """Rewrites command lines for this machine: one free port for each port of each machine, and a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, str] = {}

    def arguments(self, given: list[str], machine: str = "") -> list[str]:
        def port(found: re.Match[str]) -> str:
            key = f"{machine}:{found[0]}"
            if key not in self.ports:
                self.ports[key] = str(free_ports(1)[0])
            return self.ports[key]

        data = self.folder / f"data{machine}"
        config = self.folder / "broker.toml"
        moved = [
            each.replace("/var/lib/zhumq", str(data)).replace("/etc/zhumq/broker.toml", str(config))
            for each in given
        ]
        return [PORTS.sub(port, NAMES.sub(HOST, each)) for each in moved]


@contextlib.contextmanager
def running(arguments: list[str], log: Path) -> Iterator[dict[str, str]]:
    """`zhumq` with these arguments. Gives the addresses of its ready line."""
    with open(log, "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "zhumq", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " ready " in line, f"{arguments}: {line!r}: {log.read_text()}"
        yield dict(re.findall(r"(\w+)=(\S+)", line))
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def wait_until_ready(http: str) -> None:
    """As the probe of a container asks."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{http}/readyz", timeout=10) as answer,
        ):
            assert answer.status == 200
            return
        assert time.monotonic() < deadline, f"{http} is not ready"
        time.sleep(0.2)


def here(address: str) -> str:
    return re.sub(r"^(?:0\.0\.0\.0|\[::\])(?=:)", HOST, address)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("source", ["image", "compose", "systemd"])
def test_the_command_line_of_one_broker_runs(source: str, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("num.partitions = 2\n")
    place = Here(tmp_path)
    command = {
        "image": image_arguments,
        "compose": lambda: compose("one-node")["services"]["broker"]["command"],
        "systemd": lambda: unit_arguments("zhumq.service"),
    }[source]()
    arguments = place.arguments(command)
    if source != "compose":  # they take the default addresses, which may be in use here
        arguments += [f"--listen={HOST}:0", f"--http={HOST}:0"]
    with running([*arguments, *WATERMARKS], tmp_path / "log") as ready:
        wait_until_ready(here(ready["http"]))
        found = AdminClient({"bootstrap.servers": here(ready["kafka"]), "log_level": 0})
        assert len(found.list_topics(timeout=SECONDS_MAX).brokers) == 1


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_the_command_lines_of_the_console_run(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    place = Here(tmp_path)
    commands = [
        compose("one-node")["services"]["web"]["command"],
        unit_arguments("zhumq-web.service"),
        container("Deployment", "zhumq-web")["args"],
    ]
    for number, command in enumerate(commands):
        arguments = place.arguments(command)
        with running(arguments, tmp_path / f"log{number}") as ready:
            url = re.sub(r"//[^/:]+:", f"//{HOST}:", ready["url"])
            with urllib.request.urlopen(f"{url}/", timeout=SECONDS_MAX) as answer:
                assert "<!doctype html>" in answer.read().decode().lower()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["compose", "pods"])
def test_the_command_lines_of_three_brokers_make_a_cluster(kind: str, tmp_path: Path) -> None:
    config = manifest("ConfigMap", "zhumq")["data"]
    (tmp_path / "broker.toml").write_text(config["broker.toml"])
    if kind == "compose":
        services = compose("three-nodes")["services"]
        commands = [services[f"broker{number}"]["command"] for number in (1, 2, 3)]
    else:
        commands = [pod_arguments(index, config["ZOOKEEPER"]) for index in range(3)]
    place = Here(tmp_path)
    with contextlib.ExitStack() as stack:
        zookeeper = DevZookeeper.start(tmp_path / "zookeeper")
        stack.callback(zookeeper.stop)
        brokers = []
        for number, command in enumerate(commands):
            arguments = to_ensemble(place.arguments(command, str(number)), zookeeper.connect)
            log = tmp_path / f"log{number}"
            brokers.append(stack.enter_context(running([*arguments, *WATERMARKS], log)))
        for each in brokers:
            wait_until_ready(here(each["http"]))
        admin = AdminClient({"bootstrap.servers": here(brokers[0]["kafka"]), "log_level": 0})
        found = admin.list_topics(timeout=SECONDS_MAX).brokers.values()
        advertised = {each.port for each in found}
        assert len(advertised) == 3
        assert advertised <= {int(port) for port in place.ports.values()}


def to_ensemble(arguments: list[str], connect: str) -> list[str]:
    """The ensemble of the test in place of the one in the file, with the same path."""
    return [re.sub(r"^(--zookeeper=)[^/]*", rf"\g<1>{connect}", each) for each in arguments]


@pytest.mark.parametrize("name", COMPOSE)
def test_a_compose_file_names_what_it_has_and_gives_few_rights(name: str) -> None:
    loaded = compose(name)
    assert set(loaded) - {"name", "services", "volumes"} <= {"x-zookeeper", "x-broker"}
    known = {
        "image", "build", "command", "ports", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt", "restart",
        "stop_grace_period", "depends_on", "healthcheck", "environment",
    }  # fmt: skip
    used: set[str] = set()
    published: list[str] = []
    for service in loaded["services"].values():
        assert set(service) <= known
        assert "/" not in service["image"]  # no registry is named
        assert set(service.get("depends_on", ())) <= set(loaded["services"])
        used |= {each.partition(":")[0] for each in service.get("volumes", ())}
        published += service.get("ports", ())
        if service["image"] == "zhumq":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
    assert used == set(loaded["volumes"])
    hosts, ports = zip(*(each.rsplit(":", 2)[:2] for each in published), strict=True)
    assert set(hosts) == {"127.0.0.1"}  # --insecure is for this machine alone
    assert len(set(ports)) == len(ports)


def test_the_manifests_are_valid_by_the_schemas_of_kubernetes() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kinds = set()
    for each in manifests():
        kubernetes_validate.validate(each, "1.33", strict=True)
        kinds.add(each["kind"])
    assert kinds >= {"StatefulSet", "Service", "PodDisruptionBudget", "ConfigMap", "NetworkPolicy"}
    broken = manifest("Service", "zhumq")
    broken["spec"]["selectr"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.33", strict=True)


def test_the_manifests_refer_to_each_other() -> None:
    brokers = manifest("StatefulSet", "zhumq")["spec"]
    labels = brokers["template"]["metadata"]["labels"]
    headless = manifest("Service", brokers["serviceName"])["spec"]
    assert headless["clusterIP"] == "None"
    for selector in (
        headless["selector"],
        manifest("Service", "zhumq")["spec"]["selector"],
        manifest("PodDisruptionBudget", "zhumq")["spec"]["selector"]["matchLabels"],
        manifest("NetworkPolicy", "zhumq-brokers")["spec"]["podSelector"]["matchLabels"],
        brokers["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    pod = container("StatefulSet", "zhumq")
    ports = {each["name"]: each["containerPort"] for each in pod["ports"]}
    assert {each["name"]: each["port"] for each in headless["ports"]} == ports
    assert f"--listen=:{ports['kafka']}" in pod["args"]
    assert f"--push=:{ports['push']}" in pod["args"]
    assert f"--http=:{ports['http']}" in pod["args"]
    assert f"--set=inter.broker.listener=:{ports['brokers']}" in pod["args"]
    assert pod["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert pod["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    claims = {each["metadata"]["name"] for each in brokers["volumeClaimTemplates"]}
    volumes = {each["name"] for each in brokers["template"]["spec"]["volumes"]} | claims
    assert {each["name"] for each in pod["volumeMounts"]} == volumes
    listed = yaml.safe_load((PACKAGING / "kubernetes" / "kustomization.yaml").read_text())
    files = {path.name for path in (PACKAGING / "kubernetes").glob("*.yaml")}
    assert {*listed["resources"], "kustomization.yaml"} == files


def test_pods_have_few_rights() -> None:
    for kind, name in (("StatefulSet", "zhumq"), ("Deployment", "zhumq-web")):
        pod = manifest(kind, name)["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        (only,) = pod["containers"]
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
