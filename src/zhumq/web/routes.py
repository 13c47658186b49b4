"""The route table of the REST API: every request that it serves."""

from http import HTTPStatus
from typing import Final

from zhumq.web.endpoint import Endpoint, endpoint
from zhumq.web.resources import cluster, groups, login, messages, topics

ROUTES: Final[tuple[Endpoint, ...]] = (
    endpoint("GET", "/session", login.show_session),
    endpoint("POST", "/session", login.log_in),
    endpoint("DELETE", "/session", login.log_out),
    endpoint("GET", "/cluster", cluster.show_cluster),
    endpoint("GET", "/cluster/unwell-partitions", cluster.list_unwell),
    endpoint("GET", "/cluster/data-folders", cluster.list_folders),
    endpoint("GET", "/topics", topics.list_topics),
    endpoint("POST", "/topics", topics.create_topic, HTTPStatus.CREATED),
    endpoint("GET", "/topics/{topic}", topics.describe_topic),
    endpoint("PATCH", "/topics/{topic}", topics.alter_topic),
    endpoint("DELETE", "/topics/{topic}", topics.delete_topic),
    endpoint("GET", "/topics/{topic}/settings", topics.list_settings),
    endpoint("GET", "/topics/{topic}/sizes", topics.list_sizes),
    endpoint("GET", "/topics/{topic}/retention", topics.explain_retention),
    endpoint("POST", "/topics/{topic}/release", topics.release_topic),
    endpoint("GET", "/topics/{topic}/messages", messages.read_messages),
    endpoint("POST", "/topics/{topic}/messages", messages.send_messages, HTTPStatus.CREATED),
    endpoint("GET", "/topics/{topic}/lookup", messages.look_up),
    endpoint("GET", "/groups", groups.list_groups),
    endpoint("GET", "/groups/{group}", groups.describe_group),
    endpoint("DELETE", "/groups/{group}", groups.delete_group),
    endpoint("POST", "/groups/{group}/reset", groups.reset_group),
    endpoint("GET", "/groups/{group}/settings", groups.list_settings),
    endpoint("PATCH", "/groups/{group}/settings", groups.alter_settings),
)
