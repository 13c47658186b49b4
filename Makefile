# Every target sets up what it needs. `make run` and `make test` are all a newcomer has to know.

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One more than the cores of a small machine: tests with processes wait more than they compute.
WORKERS ?= 3
FRAMES ?= 1000000
SEED ?= 1
SEEDS ?= 200
MESSAGES ?= 1000000
MINUTES ?= 3
FAULTS ?= 50
KILLS ?= 20
PLACES ?= 200
SECONDS ?= 10
SOURCES := $(wildcard src tests examples tools simulation chaos benchmarks conformance)

# A broker is started hundreds of times in the tests, and need not compile itself each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test thorough long check static kcat chromium jdbc conformance million sim chaos txn-chaos corrupt delivery-chaos push-chaos proto fuzz attack bench delays filters lookup schemas pending-delays scale spark-chaos spark-sink-chaos spark-sinks spark-volume archive-volume shop-day supply-chain package package-test docs site patterns recording console-speed clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## /\1|/' | \
		awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

# Made once, and again only when the list of dependencies changes.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "zhumq needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "cannot make $(VENV): on Debian and Ubuntu, apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,avro,bench,cluster,console,delta,docs,iceberg,protobuf,push,registry,security,spark,sql,tracing,ui]'
	@touch $@

run: $(READY)  ## a broker with its console, pipelines on Spark over a sample, then a live shop until Ctrl-C (ONCE=1: stop after the summary; WEB=HOST:PORT)
	@$(BIN)/zhumq demo $(if $(ONCE),--once) $(if $(LISTEN),--listen $(LISTEN)) $(if $(DATA_DIR),--data-dir $(DATA_DIR)) $(if $(WEB),--web $(WEB))

check: static  ## format, lint, types, import rules, unit and property tests: under a minute
	$(BIN)/pytest -q -n $(WORKERS) -m "not slow" $(wildcard tests/test_tidy.py tests/unit tests/properties)

# Files are handed out in the order of tests/conftest.py. An ended file's worker takes the next one. One worker has all
# files of Spark (tests/schedule.py).
PYTEST := $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: static kcat chromium jdbc  ## everything in check, and tests with real sockets, real processes and kill -9 (LOAD=4: beside four busy loops; AGAIN=8: up to eight that failed run again, alone)
	$(if $(LOAD),tools/busy $(LOAD)) $(if $(AGAIN),tools/again $(AGAIN)) $(PYTEST) -m "not thorough and not long" tests

thorough: $(READY) kcat chromium jdbc  ## the tests that take five seconds or more each: kills, failovers, Spark's pipelines, every page's accessibility (AGAIN=8)
	$(if $(AGAIN),tools/again $(AGAIN)) $(PYTEST) -m "thorough and not long" tests

long: $(READY) kcat chromium jdbc  ## the tests that take half a minute or more each (AGAIN=8)
	$(if $(AGAIN),tools/again $(AGAIN)) $(PYTEST) -m long tests

static: $(READY)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check --output-format concise $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

# One of the clients that make test drives the broker with; its test says so and is skipped where it cannot be had.
kcat:
	@command -v kcat >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq kcat; } >/dev/null 2>&1; } || \
		echo "kcat is not installed: its test is skipped (apt-get install kcat)"

# The browser of tests/browser, which are skipped where it cannot be had.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1; } || \
		echo "chromium is not installed: the tests of the console in a browser are skipped (apt-get install chromium)"

# The drivers and the server of the tests of JDBC, which are skipped where these cannot be had.
JDBC_DRIVERS := org.postgresql:postgresql:42.7.7 org.xerial:sqlite-jdbc:3.50.3.0
jdbc:
	@test "$$(ls build/jars/*.jar 2>/dev/null | wc -l)" -ge 2 || { command -v mvn >/dev/null && for each in $(JDBC_DRIVERS); do \
		mvn -q -B dependency:copy -Dartifact=$$each -DoutputDirectory="$(CURDIR)/build/jars" >/dev/null 2>&1 || exit 1; done; } || \
		echo "Maven does not bring the JDBC drivers: their tests are skipped (apt-get install maven)"
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; } >/dev/null 2>&1; } || \
		echo "PostgreSQL is not installed: its tests are skipped (apt-get install postgresql)"

conformance: $(READY)  ## other people's clients and their own test suites, against a fresh broker each
	conformance/run_all

million: $(READY)  ## a million messages through each Python client while group members come and go
	ZHUMQ_CHURN_MESSAGES=1000000 $(BIN)/pytest -q tests/integration/test_group_churn.py

sim: $(READY)  ## the simulations of consensus and of transactions (SEEDS=200, or SEED=42 for one of them)
	$(BIN)/python -m simulation $(if $(filter command environment,$(firstword $(origin SEED))),--seed $(SEED) --trace,--seeds $(SEEDS))
	$(BIN)/python -m simulation.transactions $(if $(filter command environment,$(firstword $(origin SEED))),--seed $(SEED),--seeds $(SEEDS))

chaos: $(READY)  ## break a real cluster while clients use it, then check what they saw (MINUTES=3 SEED=1)
	$(BIN)/python -m chaos --minutes $(MINUTES) --seed $(SEED)

txn-chaos: $(READY)  ## the same with transactions, and a proxy that delays some requests past the next transaction (MINUTES=3 SEED=1)
	$(BIN)/python -m chaos --transactions --minutes $(MINUTES) --seed $(SEED)

corrupt: $(READY)  ## corrupt files of a real cluster's brokers and read everything back (PLACES=200 SEED=1)
	$(BIN)/python -m chaos.corruption --places $(PLACES) --seed $(SEED)

delivery-chaos: $(READY)  ## share groups on a cluster whose brokers are killed and paused (FAULTS=50 SEED=1)
	ZHUMQ_DELIVERY_FAULTS=$(FAULTS) ZHUMQ_DELIVERY_SEED=$(SEED) $(BIN)/pytest -q -n0 -o timeout=0 tests/integration/share/test_share_cluster.py

push-chaos: $(READY)  ## push to consumers while they and three brokers are killed and paused (MESSAGES=1000000 FAULTS=50 SEED=1)
	ZHUMQ_PUSH_MESSAGES=$(MESSAGES) ZHUMQ_PUSH_FAULTS=$(FAULTS) ZHUMQ_PUSH_SEED=$(SEED) ZHUMQ_PUSH_NODES=3 $(BIN)/pytest -q -n0 tests/integration/push/test_push_kills.py

proto: $(READY)  ## make push_pb2.py again from push.proto
	$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/zhumq/protocol/push/push.proto

fuzz: $(READY)  ## broken frames against a live broker (FRAMES=1000000 SEED=1)
	$(BIN)/python -m tests.fuzz.long --frames $(FRAMES) --seed $(SEED)

attack: $(READY)  ## attacks on a broker beside an honest client: its p99, the broker's memory, recovery (SECONDS=10 ATTACKS="name ...")
	$(BIN)/python -m tests.attack --seconds $(SECONDS) $(ATTACKS)

bench: $(READY)  ## zhumq beside Apache Kafka on this machine, interleaved (QUICK=1: a short look; BEFORE=FOLDER: beside another checkout)
	$(BIN)/python -m benchmarks.run $(if $(BEFORE),--before $(BEFORE))

schemas: $(READY)  ## the time and the memory of a schema registry at its start (SCHEMAS=10000)
	$(BIN)/python -m benchmarks.schemas --schemas $(or $(SCHEMAS),10000)

console-speed: $(READY)  ## how long the pages of the console take before a large broker under load (TOPICS=1000 GROUP_COUNT=500 MESSAGES=10000000)
	$(BIN)/python -m benchmarks.console --topics $(or $(TOPICS),1000) --groups $(or $(GROUP_COUNT),500) --messages $(if $(filter command environment,$(firstword $(origin MESSAGES))),$(MESSAGES),10000000)

lookup: $(READY)  ## lookups by key beside a scan, the size and the CPU of the index (MESSAGES=5000000)
	$(BIN)/python -m benchmarks.lookup --messages $(or $(MESSAGES),5000000)

filters: $(READY)  ## many subscriptions with different filters on one topic: each gets its messages, the CPU and the traffic (SUBSCRIPTIONS=1000 RATE=20000 ONE_IN=1)
	$(BIN)/python -m benchmarks.filters --subscriptions $(or $(SUBSCRIPTIONS),1000) --rate $(or $(RATE),20000) --one-in $(or $(ONE_IN),1)

delays: $(READY)  ## many delayed messages: memory while they are pending, how late they come, each once (PENDING=1000000 DUE=50000 RATE=10000 KILLS=0 BROKERS=1)
	$(BIN)/python -m benchmarks.delays --pending $(or $(PENDING),1000000) --due $(or $(DUE),50000) --rate $(or $(RATE),10000) --kills $(if $(filter command environment,$(firstword $(origin KILLS))),$(KILLS),0) --brokers $(or $(BROKERS),1)

pending-delays: $(READY)  ## memory of a broker that loads many pending messages and compacts their logs (PENDING=1000000)
	$(BIN)/python -m benchmarks.pending_delays --pending $(or $(PENDING),1000000)

scale: $(READY)  ## the cores at 10, 100 and 1,000 brokers and a million partitions: what breaks first
	$(BIN)/python -m benchmarks.scale

spark-chaos: $(READY)  ## kill the driver and the broker of an archive query, then audit it (KILLS=20 SEED=1)
	ZHUMQ_SPARK_KILLS=$(KILLS) ZHUMQ_SPARK_SEED=$(SEED) $(BIN)/pytest -q -s -n 0 tests/integration/spark/test_archive_kills.py

spark-sink-chaos: $(READY)  ## kill the driver, the executors and the broker of an exactly-once sink, then audit it (KILLS=20 SEED=1)
	ZHUMQ_SPARK_KILLS=$(KILLS) ZHUMQ_SPARK_SEED=$(SEED) $(BIN)/pytest -q -s -n 0 tests/integration/spark/test_sink_kills.py

shop-day: $(READY)  ## a day in a shop: change topics and click logs through pipelines on Spark while drivers, executors and brokers are killed, compared row by row (ROWS=100000 KILLS=20 SEED=1)
	$(BIN)/python -m chaos.shop_day --rows $(or $(ROWS),100000) --kills $(KILLS) --seed $(SEED)

spark-sinks: $(READY)  ## rows a second and the duration of a micro-batch, of the Spark sink with and without exactlyOnce
	$(BIN)/python -m benchmarks.spark_sinks

spark-volume: $(READY)  ## ten million messages through Spark, and the memory that takes
	$(BIN)/python -m benchmarks.spark_volume

archive-volume: $(READY)  ## a hundred million messages into Parquet and Delta tables with an upkeep beside it: memory and files (MESSAGES=100000000)
	$(BIN)/python -m benchmarks.archive_volume $(if $(filter command environment,$(firstword $(origin MESSAGES))),--messages $(MESSAGES))

supply-chain: $(READY)  ## a bill of materials in build/sbom.json, and known vulnerabilities of the pinned versions
	tools/supply_chain

package: $(READY)  ## the wheel and the sdist, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

package-test: package  ## install the wheel into a fresh environment for each extra in turn, and use it there (EXTRAS="console push")
	$(BIN)/python tools/package_test.py $(EXTRAS)

docs: $(READY)  ## rewrite the generated parts of docs/ from the code
	$(BIN)/python tools/docs.py

site: $(READY)  ## build the documentation site into build/site, and fail on a broken link or a page that is not in mkdocs.yml
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

patterns: $(READY)  ## run the programs of examples/patterns, and rewrite their pages in docs/patterns
	$(BIN)/python tools/pattern_pages.py

recording: $(READY)  ## the screenshots of docs/first_look.md and the recording of the README, from `zhumq demo` in headless Chromium
	$(BIN)/python tools/first_look.py

clean:  ## remove build output and caches; keeps .venv and every data folder
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
