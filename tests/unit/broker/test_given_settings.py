from pathlib import Path

import pytest

from zhumq.broker.config import BrokerConfig
from zhumq.broker.given_settings import read_settings
from zhumq.model.errors import SettingInvalid

SECRET = "s3cr3t-hunter2"


def file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_references_are_resolved_in_the_file_and_in_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZHUMQ_TEST_PARTITIONS", "7")
    factor = file(tmp_path / "factor", "2\n")
    more = file(tmp_path / "more.properties", "ms=8\nhours=3\n")
    toml = file(
        tmp_path / "zhumq.toml",
        f'num.partitions = "${{env:ZHUMQ_TEST_PARTITIONS}}"\n[log]\nroll.hours = "${{file:{more}:hours}}"\n',
    )
    settings, warnings = read_settings(
        toml,
        {
            "default.replication.factor": f"${{file:{factor}}}",
            "log.retention.ms": f"${{file:{more}:ms}}",
        },
    )
    assert settings.integer("num.partitions") == 7
    assert settings.integer("default.replication.factor") == 2
    assert settings.integer("log.retention.ms") == 8
    assert settings.integer("log.roll.ms") == 3 * 3_600_000
    assert warnings == ()


def test_a_reference_in_the_file_that_a_flag_overrides_is_not_followed(tmp_path: Path) -> None:
    toml = file(tmp_path / "zhumq.toml", 'num.partitions = "${file:/no/such/file}"\n')
    settings, _ = read_settings(toml, {"num.partitions": "4"})
    assert settings.integer("num.partitions") == 4


@pytest.mark.parametrize(
    "name", ["num.partitions", "log.retention.hours", "delete.topic.enable", "log.cleanup.policy"]
)
def test_an_error_names_the_reference_and_not_what_is_behind_it(tmp_path: Path, name: str) -> None:
    reference = f"${{file:{file(tmp_path / 'secret', SECRET)}}}"
    with pytest.raises(SettingInvalid) as refused:
        BrokerConfig.load(settings={name: reference})
    assert f"{name}='{reference}'" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    secret = file(tmp_path / "secret", "3", mode=0o640)
    config = BrokerConfig.load(settings={"num.partitions": f"${{file:{secret}}}"})
    (warning,) = config.warnings
    assert warning == (
        f"{secret}, which num.partitions refers to, is open to other users of this machine:"
        f" `chmod 600 {secret}`"
    )


@pytest.mark.parametrize("path", ["", "/", "/dev/zero", "/no/such/file", "\0"])
def test_a_path_that_is_no_small_file_is_refused(path: str) -> None:
    with pytest.raises(SettingInvalid, match=r"^num\.partitions=\$\{file:"):
        BrokerConfig.load(settings={"num.partitions": f"${{file:{path}}}"})
