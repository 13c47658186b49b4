"""Requests that several tests of the REST API make."""

import httpx


def problem(answer: httpx.Response, status: int) -> dict[str, object]:
    """The problem that a request was answered with."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, object] = answer.json()
    assert found["status"] == status
    assert isinstance(found["detail"], str)
    assert "\n" not in found["detail"]
    return found


def create(api: httpx.Client, topic: str, **fields: object) -> None:
    answer = api.post("/topics", json={"topic": topic, **fields})
    assert answer.status_code == 201, answer.text


def send(api: httpx.Client, topic: str, *values: object, **fields: object) -> list[dict[str, int]]:
    """Send values, each with these fields. Returns where they were written."""
    messages = [{"value": value, **fields} for value in values]
    answer = api.post(f"/topics/{topic}/messages", json={"messages": messages})
    assert answer.status_code == 201, answer.text
    sent: list[dict[str, int]] = answer.json()["messages"]
    return sent
