"""One attack in a process of its own: `python -m tests.attack.attacker NAME --kafka=... --tls=... ...`."""

import argparse
import asyncio
import os
import resource
import sys
from dataclasses import fields

import uvloop

from .http_attacks import HTTP_ATTACKS
from .kafka_attacks import KAFKA_ATTACKS
from .login_flood import LOGIN_FLOODS
from .push_attacks import PUSH_ATTACKS
from .sasl_attacks import SASL_ATTACKS
from .target import Target
from .tls_attacks import TLS_ATTACKS

ATTACKS = KAFKA_ATTACKS | HTTP_ATTACKS | PUSH_ATTACKS | TLS_ATTACKS | SASL_ATTACKS | LOGIN_FLOODS
BEGUN = "begun"
NICENESS = 5  # an attacker has its own machine in real life: here it yields to broker and client


async def attack(name: str, target: Target) -> None:
    """Attacks until stdin is closed."""
    await ATTACKS[name](target)
    sys.stdout.write(f"{BEGUN}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(ATTACKS))
    parts = [each.name for each in fields(Target)]
    for part in parts:
        parser.add_argument(f"--{part}", required=True)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(NICENESS)
    target = Target(**{part: getattr(arguments, part) for part in parts})
    uvloop.install()
    asyncio.run(attack(arguments.name, target))
    os._exit(0)  # thousands of tasks need not be cancelled one by one


if __name__ == "__main__":
    main()
