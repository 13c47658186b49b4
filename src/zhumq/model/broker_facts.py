"""Facts of a broker that DescribeConfigs answers beside its settings, if it is asked for them by name."""

from typing import Final

VERSION_SETTING: Final = "zhumq.version"
