# Shared by every suite's `run`: where things are, and the verdict at the end. Sourced, never run.
#
# BOOTSTRAP     the broker to test, 127.0.0.1:9092 unless said
# RUN_EXCLUDED  1 also runs what tests.exclude names, and reports what passes there
# ONLY          a suite-specific selection of tests, for looking into one failure
set -euo pipefail

SUITE_DIR=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
SUITE=$(basename "$SUITE_DIR")
REPOSITORY=$(cd "$SUITE_DIR/../.." && pwd)
BUILD=$REPOSITORY/build/conformance/$SUITE
RESULTS=$BUILD/results.tsv
BOOTSTRAP=${BOOTSTRAP:-127.0.0.1:9092}
RUN_EXCLUDED=${RUN_EXCLUDED:-0}
ONLY=${ONLY:-}
mkdir -p "$BUILD"

say() { printf '%s: %s\n' "$SUITE" "$*" >&2; }

# The ids of tests.exclude, one per line.
excluded() { sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' "$SUITE_DIR/tests.exclude"; }

# Compare results.tsv with tests.exclude, print the last line, and end with its exit code.
verdict() { exec python3 "$REPOSITORY/conformance/verdict.py" "$SUITE" "$RESULTS" "$SUITE_DIR/tests.exclude"; }

# Append the results of a suite's program that reads the compacted topics. conformance/compacted.py makes those; without
# it there are none to read.
compacted() {
    if [ -n "${COMPACTED_TOPICS:-}" ] && [[ compacted =~ $ONLY ]]; then
        timeout 300 "$@" >> "$RESULTS" 2> "$BUILD/compacted.log" || say "see $BUILD/compacted.log"
    fi
}

# Write log4j2.properties for programs in Java: warnings, on stderr.
java_logging() {
    cat > "$BUILD/log4j2.properties" << 'LOG'
status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
LOG
}
