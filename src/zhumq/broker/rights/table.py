"""The table of rights: the rule of every API. A request without a rule is refused."""

from collections.abc import Mapping
from typing import Final

from zhumq.broker.rights.cluster_rules import CLUSTER_RULES
from zhumq.broker.rights.group_rules import GROUP_RULES
from zhumq.broker.rights.rule import Rule
from zhumq.broker.rights.share_rules import SHARE_RULES
from zhumq.broker.rights.topic_rules import TOPIC_RULES
from zhumq.broker.rights.transaction_rules import TRANSACTION_RULES
from zhumq.protocol.api import ApiKey

RULES: Final[Mapping[ApiKey, Rule]] = {
    **TOPIC_RULES,
    **GROUP_RULES,
    **SHARE_RULES,
    **CLUSTER_RULES,
    **TRANSACTION_RULES,
}
