#!/usr/bin/env bash
# kcat over a secured listener; its topic exists already, since it has no administration beyond -L.
# KCAT_LIBRARIES says where its librdkafka is.
set -uo pipefail
RECORDS=100
export LD_LIBRARY_PATH=${KCAT_LIBRARIES:-}
declare -A given=()
while [ $# -gt 1 ]; do
    given[${1#--}]=$2
    shift 2
done
topic=${given[topic]}
folder=$(mktemp -d -t secure-kcat-XXXXXX)
trap 'rm -rf "$folder"' EXIT
failed=0

settings=(-b "${given[bootstrap]}" -X "security.protocol=${given[protocol]}" -X "ssl.ca.location=${given[ca]}")
if [ "${given[protocol]}" = SASL_SSL ]; then
    own=(-X sasl.mechanism=SCRAM-SHA-512 -X "sasl.username=${given[user]}" -X "sasl.password=${given[password]}")
    wrong=(-X sasl.mechanism=SCRAM-SHA-512 -X "sasl.username=${given[user]}" -X "sasl.password=not ${given[password]}")
    refusal='SASL authentication error'
else
    own=(-X "ssl.certificate.location=${given[certificate]}" -X "ssl.key.location=${given[key]}")
    wrong=()
    refusal='alert number'
fi
kcat=(timeout 60 kcat -q "${settings[@]}" "${own[@]}")

send() { seq "$1" "$2" | "${kcat[@]}" -P -t "$topic" -X acks=all -X enable.idempotence=true; }
same() { diff <(sort "$1") <(seq "$2" "$3" | sort) >&2; }

describe() { "${kcat[@]}" -L -t "$topic" > "$folder/list" && grep -q "topic \"$topic\" with 2 partitions" "$folder/list"; }
produce() { send 1 $RECORDS; }
consume() { "${kcat[@]}" -C -t "$topic" -o beginning -e > "$folder/alone" && same "$folder/alone" 1 $RECORDS; }
# A member reads until the end of each partition, commits, and leaves.
member() { "${kcat[@]}" -X auto.offset.reset=earliest -e -G "$topic" "$topic"; }
group() {
    member > "$folder/first" && same "$folder/first" 1 $RECORDS && send $((RECORDS + 1)) $((RECORDS + 1)) \
        && member > "$folder/second" && same "$folder/second" $((RECORDS + 1)) $((RECORDS + 1))
}
refused() {
    ! timeout 60 kcat "${settings[@]}" "${wrong[@]}" -L -m 5 > "$folder/refused" 2>&1 && grep -q "$refusal" "$folder/refused"
}

for step in describe produce consume group refused; do
    if $step; then printf 'PASS\t%s\n' "$step"; else
        failed=1
        printf 'FAIL\t%s\n' "$step"
        for file in "$folder"/*; do printf '%s:\n' "$(basename "$file")" >&2 && tail -n 5 "$file" >&2; done
    fi
done
exit $failed
