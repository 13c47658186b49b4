"""Security settings of pipeline files: secrets by reference only."""

from pathlib import Path

import pytest

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.spark.security_options import security_options

PIPELINE = """\
name: secured
parameters: {{user: alice}}
trigger: batch
security:
  security.protocol: SASL_SSL
  sasl.mechanism: SCRAM-SHA-512
  {setting}
sources:
  orders: {{topic: orders}}
sinks:
  out: {{console: 5}}
"""
JAAS = '\'x.ScramLoginModule required username="${user}" password="%s";\''


def load(tmp_path: Path, setting: str) -> dict[str, str]:
    file = tmp_path / "pipeline.yml"
    file.write_text(PIPELINE.format(setting=setting))
    return dict(load_pipeline(file).security)


def test_references_stay_references_and_parameters_are_filled_in(tmp_path: Path) -> None:
    found = load(tmp_path, "sasl.jaas.config: " + JAAS % "${file:/run/secret:alice}")
    assert found["sasl.jaas.config"] == (
        'x.ScramLoginModule required username="alice" password="${file:/run/secret:alice}";'
    )


@pytest.mark.parametrize(
    "setting",
    [
        "sasl.jaas.config: " + JAAS % "geheim",
        "sasl.jaas.config: " + JAAS % "geheim${env:X}",
        "sasl.password: geheim",
        "ssl.keystore.password: geheim",
        "ssl.key.password: ge${env:X}heim",
        "ssl.keystore.key: geheim",
        "sasl.oauthbearer.client.credentials.client.secret: geheim",
    ],
)
def test_a_secret_in_the_file_is_refused_with_its_line(tmp_path: Path, setting: str) -> None:
    with pytest.raises(
        SpecInvalid, match=r"pipeline.yml:7: security.*by reference, as \$\{env:"
    ) as it:
        load(tmp_path, setting)
    assert "geheim" not in str(it.value)


def test_a_secret_in_the_options_of_a_source_or_sink_is_refused(tmp_path: Path) -> None:
    for place in ("sources", "sinks"):
        source = "options: {kafka.sasl.password: geheim}" if place == "sources" else ""
        sink = "options: {kafka.sasl.password: geheim}" if place == "sinks" else ""
        file = tmp_path / f"{place}.yml"
        file.write_text(
            "name: a\ntrigger: batch\n"
            f"sources:\n  orders:\n    topic: orders\n    {source}\n"
            f"sinks:\n  out:\n    topic: copy\n    {sink}\n"
        )
        with pytest.raises(SpecInvalid, match=rf"{place}.*by reference") as caught:
            load_pipeline(file)
        assert "geheim" not in str(caught.value)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid, match="is no security setting"):
        load(tmp_path, "acks: all")


def test_the_options_of_spark_hold_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "geheim")
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "${env:X}",
    }
    brokers = Brokers(bootstrap="a:1", settings=security_options(given | {"kafka.acks": "1"}))
    assert brokers.options() == given | {"kafka.bootstrap.servers": "a:1"}
    assert brokers.security().password.reveal() == "geheim"
