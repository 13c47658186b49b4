"""Pages of the audit logs of several brokers: one order, no line lost, none twice."""

import random

from zhumq.admin.audit_log import NEWEST, AuditPlace, merged
from zhumq.protocol.messages.audit_log import AuditLine, AuditLogResponse

BROKERS = (1, 2, 3)
FILE = 7


def answer(lines: list[AuditLine], begin: AuditPlace, limit: int, looks: int) -> AuditLogResponse:
    """What a broker with these lines, oldest first, answers if it looks at so many of them; every other one passes."""
    end = len(lines) if begin == NEWEST else begin.position
    seen = lines[max(0, end - looks) : end][::-1]
    found: list[AuditLine] = []
    for number, line in enumerate(seen, 1):
        if line.allowed:
            found.append(line)
        if len(found) == limit or number == len(seen):
            is_last = line.position == 0
            return AuditLogResponse(
                lines=found,
                next_file=-1 if is_last else FILE,
                next_position=line.position,
                oldest_time=line.time,
            )
    return AuditLogResponse()


def test_lines_of_all_brokers_are_merged_by_their_times() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        logs: dict[int, list[AuditLine]] = {}
        for broker in BROKERS:
            times = sorted(draw.randrange(1_000) for _ in range(draw.randrange(40)))
            logs[broker] = [
                AuditLine(
                    file=FILE,
                    position=place,
                    time=f"{time:06}",
                    allowed=draw.random() < 0.5,
                    count=broker,
                )
                for place, time in enumerate(times)
            ]
        limit, looks = draw.randrange(1, 8), draw.randrange(1, 10)
        places = dict.fromkeys(BROKERS, NEWEST)
        found: list[tuple[int, str]] = []
        for _ in range(1_000):
            answers = {each: answer(logs[each], places[each], limit, looks) for each in places}
            page = merged(answers, places, limit)
            assert len(page.records) <= limit
            found += [(each.broker, each.id) for each in page.records]
            places = dict(page.next)
            if not places:
                break
        assert not places, f"seed {seed}: the pages have no end"
        expected = {
            (broker, f"{broker}:{FILE}:{each.position}")
            for broker, lines in logs.items()
            for each in lines
            if each.allowed
        }
        assert set(found) == expected, f"seed {seed}"
        assert len(found) == len(expected), f"seed {seed}"
        times_by_id = {
            (broker, f"{broker}:{FILE}:{each.position}"): each.time
            for broker, lines in logs.items()
            for each in lines
        }
        order = [times_by_id[each] for each in found]
        assert order == sorted(order, reverse=True), f"seed {seed}"
