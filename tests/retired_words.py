"""Words that the project no longer uses, each with the one to use: `python tests/retired_words.py [PATH ...]`.

docs/glossary.md says what is used instead. A word is looked for where its old meaning could come back, and in the rest
of the tree it may mean what it means to everybody.
"""

import functools
import re
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = (
    "src", "tests", "tools", "docs", "examples", "simulation", "chaos", "benchmarks", "conformance",
)  # fmt: skip
SUFFIXES = {".md", ".py", ".txt", ".toml", ".proto"}
# Here the words themselves are what it is about.
EXEMPT = {"tests/retired_words.py", "docs/glossary.md"}
# Names that programs of users, disks and other brokers know; they stay as they are.
KEPT = (
    "zhumq_partitions_healing", "delivery.dead.letter.", "quota.window.", "wanted_mode", '"wanted_replicas"', '"handover"', '"letter', "--letter",
    "`picture`", "picture=", "picture:", "${picture}", '"picture"',
)  # fmt: skip


class Retired(NamedTuple):
    """A pattern, what to write instead, and where it is looked for (everywhere where nothing is said)."""

    pattern: str
    instead: str
    where: str = ""
    but_not: str = "$^"


RETIRED = (
    Retired(r"controller_?driver", "metadata client"),
    Retired(r"wish(es|ed|ing)?", "request, proposal, NewTopic"),
    Retired(r"ballots?", "vote tally"),
    Retired(r"pictures?", "metadata image; chart"),
    Retired(r"(begin|end)_life|(earlier|first|next|one|of its) life", "broker epoch, session"),
    Retired(
        r"promis(e|es|ed|ing)",
        "persisted vote, quorum state",
        r"src/zhumq/(consensus|replication|storage/quorum)|tests/(unit/consensus|replication|simulation)",
    ),
    Retired(
        r"heal(s|ed|ing)?", "recover, repair", but_not=r"chaos|nemesis|simul|docs/architecture"
    ),
    Retired(r"(un)?heard", "last contact, unreachable, received"),
    Retired(r"miss_broker|old news|\bnews", "update, notification"),
    Retired(r"strangers?", "observer"),
    Retired(r"standings?", "follower fetch state, state"),
    Retired(
        r"hand_?overs?|hand_back|hands? (over|back)", "mode change, transfer, preferred leader"
    ),
    Retired(r"hubs?", "router"),
    Retired(
        r"windows?",
        "share partition",
        r"src/zhumq/(share|coordinators|broker|push|protocol|client|cli)|tests/(unit|properties|integration)/(share|coordinators|push)|docs/(push|client|architecture)",
    ),
    Retired(r"(?<!dead[ _-])(?<!dead-\n)letters?", "dead letter", but_not=r"regex|topic_names"),
    Retired(r"bur(y|ies|ied|ial|ials|ying)|dying", "dead-letter, archive"),
    Retired(r"shel(f|ves)|holdings|patience|impatient", "delivery buffer, in-flight, ack deadline"),
    Retired(r"doors?|doorways?", "listener, endpoint"),
    Retired(r"roads?", "path, router"),
    Retired(r"told|said|wanted", "the noun that is meant"),
    Retired(r"scenes?|deeds?|harm(s|ed)?|blows|battlefields?", "operation, fault, run"),
    Retired(r"campaigns?", "run", r"chaos|docs"),
    Retired(r"nobody|whoever|somebody", "the broker, a client, a follower"),
)


def find(paths: list[Path]) -> list[str]:
    """Every line with a retired word: where it is, the word, and what to write."""
    found = []
    for path in paths:
        name = path.relative_to(REPOSITORY).as_posix()
        if name in EXEMPT or name.endswith("_pb2.py"):
            continue
        words = path.read_text()
        for kept in KEPT:
            words = words.replace(kept, "")
        words = re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()
        here = tuple(
            each
            for each in RETIRED
            if re.search(each.where, name) and not re.search(each.but_not, name)
        )
        # Nearly every file has none: one search for all is enough there.
        if any_of(here).search(words):
            for each in here:
                for match in any_of((each,)).finditer(words):
                    number = words.count("\n", 0, match.start()) + 1
                    found.append(f"{name}:{number}: {match.group()} -> {each.instead}")
    return found


@functools.cache
def any_of(retired: tuple[Retired, ...]) -> re.Pattern[str]:
    """What finds each of these words in lower case. `_` and the humps of a class name separate words as blanks do."""
    patterns = "|".join(f"(?:{each.pattern})" for each in retired)
    return re.compile(rf"(?<![a-z])(?:{patterns})(?![a-z])")


def files(folders: list[Path]) -> list[Path]:
    found: set[Path] = set()
    for folder in folders:
        inside = folder.rglob("*") if folder.is_dir() else [folder]
        found.update(
            each for each in inside if each.suffix in SUFFIXES and "__pycache__" not in each.parts
        )
    return sorted(each for each in found if "node_modules" not in each.parts)


def everything() -> list[Path]:
    return files([*(REPOSITORY / each for each in FOLDERS), *REPOSITORY.glob("*.md")])


if __name__ == "__main__":
    lines = find(files([Path(each).resolve() for each in sys.argv[1:]]) or everything())
    print(*lines, sep="\n")
    sys.exit(1 if lines else 0)
