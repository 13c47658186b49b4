"""Mistakes that people make in a pipeline file, each with the line and the words that its error must have."""

from dataclasses import dataclass

FILES = {
    "shop.yml": """\
name: shop
trigger: 10s
bootstrap: 127.0.0.1:9092
security:
  security.protocol: SASL_SSL
  sasl.password: ${env:SHOP_PASSWORD}
spark:
  spark.sql.shuffle.partitions: 8
parameters:
  topic: orders
  folder: tables
sources:
  records:
    topic: ${topic}
    from: earliest
    headers: true
    options: {maxOffsetsPerTrigger: 5000}
    watermark: {column: timestamp, delay: 10 minutes}
  drops:
    files: /data/drops
    format: csv
    schema: id BIGINT, at TIMESTAMP
    on_error: drop
    options: {header: true}
  countries:
    table: tables/countries
    format: csv
steps:
  - name: parsed
    parse: records
    format: json
    schema: |
      id BIGINT,
      amount DOUBLE
    on_error: dead_letters
  - name: typed
    parse: records
    format: avro
    schema_file: order.avsc
    on_error: drop
  - name: good
    expect: parsed
    rules:
      - name: paid
        rule: amount > 0
        action: quarantine
        sink: unpaid
      - {name: known, rule: id IS NOT NULL, action: fail}
  - name: honest
    check: parsed
    rules:
      - rule: amount < 1000000
        reason: too much for one order
  - name: once
    deduplicate: good
    by: [id]
    within: 10 minutes
  - name: large
    sql: |
      SELECT once.id, amount
      FROM once
      JOIN countries ON once.id = countries.id
      WHERE EXTRACT(YEAR FROM timestamp) > 2020
  - name: taxed
    python: own_steps:with_tax
    inputs: [large]
    arguments: {percent: "20"}
sinks:
  large:
    from: taxed
    topic: large-orders
    key: CAST(id AS STRING)
    mode: append
    keep: [headers]
    options: {exactlyOnce: true}
  unpaid:
    topic: unpaid-orders
  archive:
    from: honest
    table: ${folder}/archive
    partition_by: [topic]
  counts:
    from: parsed
    table: ${folder}/counts
    batch_sql: SELECT id, count(*) AS n FROM batch GROUP BY id
  newest:
    from: parsed
    merge: ${folder}/newest
    keys: [id]
    sequence_by: offset
  database:
    from: parsed
    table: shop.orders
    format: jdbc
    keys: [id]
    sequence_by: amount
    options:
      url: jdbc:postgresql://db/shop
      password: ${env:SHOP_PASSWORD}
  seen:
    from: large
    console: 5
dead_letters:
  topic: orders-bad
report:
  python: own_steps:report
  arguments: {table: tables}
""",
    "own_steps.py": """\
def with_tax(rows, percent):
    return rows


def report(table):
    yield table
""",
    "broken_steps.py": "def with_tax(rows, percent:\n",
    "order.avsc": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}',
    "text.avsc": '"string"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A change of `shop.yml`, a part of the line that the error must name, and words of the error."""

    kind: str
    before: str
    after: str
    line: str
    words: str


def _kind(kind: str, before: str, after: str, line: str, words: str) -> Mistake:
    return Mistake(kind=kind, before=before, after=after, line=line, words=words)


# fmt: off
MISTAKES = (
    # The document.
    _kind("not YAML", "    headers: true", "\theaders: true", "\theaders: true", "this is not YAML: found character"),
    _kind("a misspelled field", "bootstrap:", "bootstap:", "bootstap:", "did you mean 'bootstrap'?"),
    _kind("a field given twice", "trigger: 10s", "trigger: 10s\ntrigger: 1m", "trigger: 1m", "is given twice"),
    _kind("a missing field", "    by: [id]\n", "", "name: once", "needs the field 'by'"),
    _kind("a value in place of fields", "security:\n  security.protocol: SASL_SSL\n  sasl.password: ${env:SHOP_PASSWORD}", "security: SASL_SSL", "security: SASL_SSL", "must have fields of its own"),
    _kind("an empty value", "topic: unpaid-orders", "topic:", "  unpaid:\n    topic:", "must be a text"),
    _kind("an unknown parameter", "table: ${folder}/archive", "table: ${foldre}/archive", "foldre", "there is no parameter 'foldre'; there are: topic, folder"),
    _kind("a parameter without a value", "  folder: tables", "  folder:", "  folder:", "has no value: give it with --set folder=..."),
    # The whole pipeline.
    _kind("a name that is no name", "name: shop", "name: shop/orders", "name: shop/orders", "is not a name"),
    _kind("a trigger that is no time", "trigger: 10s", "trigger: often", "trigger: often", "is batch, available-now, or a time such as 10s"),
    _kind("an address without a port", "bootstrap: 127.0.0.1:9092", "bootstrap: localhost", "bootstrap: localhost", "is not HOST:PORT"),
    _kind("a security setting that is none", "security.protocol: SASL_SSL", "protocol: SASL_SSL", "  protocol: SASL_SSL", "is no security setting"),
    _kind("a secret in the file", "sasl.password: ${env:SHOP_PASSWORD}", "sasl.password: sesame", "sasl.password", "holds a secret: give it by reference"),
    _kind("a setting that Spark would ignore", "spark.sql.shuffle.partitions: 8", "shuffle.partitions: 8", "  shuffle.partitions", "their names begin with spark."),
    _kind("the master in the file", "spark.sql.shuffle.partitions: 8", "spark.master: yarn", "spark.master", "is not given here: zhumq pipeline run --master URL"),
    _kind("a schedule of a run without an end", "trigger: 10s", "trigger: 10s\nschedule: {every: 1h}", "schedule:", "is for runs that end"),
    _kind("a schedule too close", "trigger: 10s", "trigger: batch\nschedule: {every: 10s}", "schedule:", "must be a minute or longer"),
    _kind("a schedule at no time", "trigger: 10s", "trigger: batch\nschedule: {at: noon}", "schedule:", "is a time of the day in UTC such as 04:00"),
    _kind("a schedule at a time twice", "trigger: 10s", "trigger: batch\nschedule: {at: [04:00, 04:00]}", "schedule:", "names the time 04:00 twice"),
    # Sources.
    _kind("a source of two kinds", "    topic: ${topic}\n", "    topic: ${topic}\n    table: t\n", "    table: t\n", "excludes the field 'topic'"),
    _kind("a name that no topic has", "topic: ${topic}", "topic: my orders", "topic: my orders", "has characters other than"),
    _kind("a pattern that is no expression", "topic: ${topic}", "pattern: 'orders-(.*'", "pattern:", "unterminated subpattern"),
    _kind("a place that is none", "from: earliest", "from: yesterday", "from: yesterday", "startingOffsets is not JSON: 'yesterday'"),
    _kind("an end of a stream", "from: earliest", "until: latest", "until: latest", "a stream has no end"),
    _kind("an option that is none", "{maxOffsetsPerTrigger: 5000}", "{maxOffsetPerTrigger: 5000}", "maxOffsetPerTrigger", "there is no option"),
    _kind("an option of a wrong value", "{maxOffsetsPerTrigger: 5000}", "{maxOffsetsPerTrigger: many}", "maxOffsetsPerTrigger", "is a whole number above 0"),
    _kind("an option that repeats a field", "{maxOffsetsPerTrigger: 5000}", "{startingOffsets: latest}", "startingOffsets", "is what the field 'from' says: give one of them"),
    _kind("a switch that is neither on nor off", "headers: true", "headers: 'on'", "headers: 'on'", "must be true or false"),
    _kind("columns that messages do not have", "headers: true", "columns: [value, vlaue]", "columns:", "there is no column 'vlaue'"),
    _kind("a delay that is no time", "delay: 10 minutes", "delay: some", "delay: some", "is a time such as 10s"),
    _kind("a stream of a log without a broker", "topic: ${topic}", "segments: data", "segments: data", "a stream needs a broker"),
    _kind("files without a schema", "    schema: id BIGINT, at TIMESTAMP\n", "", "files: /data/drops", "needs the field 'schema'"),
    _kind("dead letters of files", "    on_error: drop\n    options: {header: true}", "    on_error: dead_letters", "at TIMESTAMP\n    on_error: dead_letters", "use format: text and a `parse` step"),
    _kind("a misspelled format of a table", "countries\n    format: csv", "countries\n    format: cvs", "format: cvs", "there is no format 'cvs' (did you mean 'csv'?)"),
    # Steps.
    _kind("a step of no kind", "deduplicate: good", "deduplicte: good", "name: once", "needs one of the fields sql, python"),
    _kind("a step that is not above", "expect: parsed", "expect: once", "expect: once", "there is no source or step 'once' above"),
    _kind("two steps of one name", "name: large\n    sql", "name: once\n    sql", "within: 10 minutes\n  - name: once", "there are two views named 'once'"),
    _kind("a misspelled type", "id BIGINT,\n", "id BIGNIT,\n", "id BIGNIT", "there is no type 'BIGNIT' (did you mean BIGINT?)"),
    _kind("a column that is there twice", "amount DOUBLE", "id DOUBLE", "id DOUBLE", "the column 'id' is there twice"),
    _kind("a column that pipelines use", "amount DOUBLE", "_message STRING", "    schema: |", "a field cannot be named '_message'"),
    _kind("a schema file that is not there", "order.avsc", "orders.avsc", "orders.avsc", "cannot read"),
    _kind("a schema that is not of messages", "order.avsc", "text.avsc", "text.avsc", "the schema of a message must be a record"),
    _kind("bad rows without a place", "dead_letters:\n  topic: orders-bad\n", "", "name: parsed\n    parse: records", "finds bad rows: give the topic for them"),
    _kind("a quarantine without a sink", "sink: unpaid", "sink: unapid", "rule: amount > 0", "there is no sink 'unapid' for the quarantine"),
    _kind("an action that is none", "action: fail", "action: stop", "action: stop", "must be one of warn, drop, quarantine, fail"),
    _kind("a rule with an open bracket", "rule: amount < 1000000", "rule: (amount < 1000000", "rule: (amount", "the bracket ( is not closed"),
    _kind("a text with an open quote", "rule: amount < 1000000", "rule: amount < '1000000", "rule: amount <", "the quote ' is not closed"),
    _kind("a table to enrich from that is a stream", "deduplicate: good\n    by: [id]\n    within: 10 minutes", "enrich: good\n    table: drops\n    by: id\n    columns: [at]", "    table: drops", "there is no table 'drops' among the sources"),
    _kind("a join with a stream without a watermark", "JOIN countries ON once.id = countries.id", "JOIN drops ON once.id = drops.id", "JOIN drops", "joins the stream drops, which has no watermark"),
    _kind("duplicates within no time", "within: 10 minutes", "within: 0s", "within: 0s", "must be longer than 0"),
    _kind("SQL that is no query", "SELECT once.id, amount\n", "DELETE FROM once\n", "DELETE FROM once", "a query begins with SELECT or WITH, not DELETE"),
    _kind("a misspelled SELECT", "SELECT once.id", "SELCT once.id", "SELCT", "did you mean SELECT?"),
    _kind("two queries in a step", "FROM once\n", "FROM once;\n", "JOIN countries", "one step is one query"),
    _kind("a misspelled view", "FROM once\n", "FROM onec\n", "FROM onec", "there is no source or step 'onec' above (did you mean 'once'?)"),
    _kind("a misspelled view of a join", "JOIN countries ON", "JOIN contries ON", "JOIN contries", "there is no source or step 'contries' above"),
    _kind("a query of itself", "FROM once\n", "FROM large\n", "    sql: |", "reads itself"),
    _kind("a query of a step below", "FROM once\n", "FROM taxed\n", "    sql: |", "reads the step 'taxed' below"),
    _kind("a function without a module", "own_steps:with_tax", "with_tax", "python: with_tax", "is module:function"),
    _kind("a module that is not there", "own_steps:with_tax", "my_own_steps:with_tax", "my_own_steps", "there is no my_own_steps.py beside the file"),
    _kind("a function that is not there", "own_steps:with_tax", "own_steps:with_taxes", "with_taxes", "has no function 'with_taxes' (did you mean 'with_tax'?)"),
    _kind("a module that is no Python", "own_steps:with_tax", "broken_steps:with_tax", "broken_steps", "broken_steps.py:1: '(' was never closed"),
    _kind("a misspelled argument", '{percent: "20"}', '{precent: "20"}', "python: own_steps:with_tax", "with_tax(rows, percent) missing a required argument: 'percent'"),
    _kind("too many inputs", "inputs: [large]", "inputs: [large, good, once]", "python: own_steps:with_tax", "with_tax(rows, percent) multiple values for argument 'percent'"),
    # Sinks.
    _kind("a sink of no kind", "    console: 5", "    cnosole: 5", "  seen:\n    from", "needs one of the fields topic, table, merge, console"),
    _kind("a sink of a view that is not there", "from: taxed", "from: taxes", "from: taxes", "there is no source or step 'taxes' above"),
    _kind("a topic of the brokers", "topic: large-orders", "topic: __consumer_offsets", "__consumer_offsets", "is a topic of the brokers' own"),
    _kind("a mode that is none", "mode: append", "mode: appned", "mode: appned", "did you mean 'append'?"),
    _kind("a column that messages cannot keep", "keep: [headers]", "keep: [offset]", "keep: [offset]", "must be one of headers, partition, timestamp"),
    _kind("a misspelled option of a sink", "exactlyOnce: true", "exatlyOnce: true", "exatlyOnce", "there is no option"),
    _kind("an option of a sink of a wrong value", "exactlyOnce: true", "exactlyOnce: maybe", "exactlyOnce", "is true or false, not 'maybe'"),
    _kind("a rate of a stream", "mode: append", "rate: 100", "rate: 100", "is for trigger: batch"),
    _kind("a table without a name", "table: ${folder}/archive", "table: ''", "table: ''", "must name a table"),
    _kind("a column to partition by twice", "partition_by: [topic]", "partition_by: [topic, topic]", "partition_by", "names the column 'topic' twice"),
    _kind("SQL of a batch without the batch", "FROM batch GROUP", "FROM parsed GROUP", "batch_sql", "does not read the view 'batch'"),
    _kind("a merge without an order", "    sequence_by: offset\n", "", "merge:", "needs the field 'sequence_by'"),
    _kind("a merge into the table of a sink", "merge: ${folder}/newest", "merge: ${folder}/archive", "merge:", "the sink 'archive' writes to tables/archive too"),
    _kind("an upkeep of files that are not Delta", "partition_by: [topic]", "upkeep: {every: 1d}", "upkeep:", "is for format: delta and for merge, not for parquet"),
    _kind("an upkeep without a time", "    sequence_by: offset\n", "    sequence_by: offset\n    upkeep: {older_than: 7d}\n", "    upkeep:", "needs one of the fields every, at"),
    _kind("an upkeep that removes too early", "    sequence_by: offset\n", "    sequence_by: offset\n    upkeep: {at: 04:00, older_than: 5m}\n", "    upkeep:", "must be an hour or longer"),
    _kind("an upkeep by a column that is no partition", "    sequence_by: offset\n", "    sequence_by: offset\n    upkeep: {at: 04:00, expire: {date: 90d}}\n", "    upkeep:", "the table is not partitioned by 'date': rows expire by partitions"),
    _kind("an upkeep that lets nothing live", "    sequence_by: offset\n", "    sequence_by: offset\n    partition_by: [date]\n    upkeep: {at: 04:00, expire: {date: 1h}}\n", "    upkeep:", "is a time of a day to 100 years, such as 90d, not '1h'"),
    _kind("an upkeep by two columns", "    sequence_by: offset\n", "    sequence_by: offset\n    upkeep: {at: 04:00, expire: {date: 9d, day: 9d}}\n", "    upkeep:", "is one column and how long its days are kept"),
    _kind("an upkeep of an object store", "    merge: ${folder}/newest\n", "    merge: s3a://newest\n    upkeep: {at: 04:00}\n", "    upkeep:", "is for tables on the file system of the machine"),
    _kind("an address that is no database", "jdbc:postgresql://db/shop", "db/shop", "url:", "begins with jdbc:"),
    _kind("keys in a database that has none", "jdbc:postgresql://db/shop", "jdbc:oracle://db/shop", "format: jdbc\n    keys: [id]", "is for databases whose upsert is known"),
    _kind("a password in the file", "      password: ${env:SHOP_PASSWORD}", "      password: sesame", "      password:", "holds a secret"),
    _kind("dead letters that are read again", "topic: orders-bad", "topic: ${topic}", "dead_letters:\n  topic:", "each bad row would come back"),
    _kind("a report that takes other arguments", "arguments: {table: tables}", "arguments: {tables: tables}", "python: own_steps:report", "report(table) missing a required argument: 'table'"),
)
# fmt: on
