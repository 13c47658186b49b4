"""A pipeline that copies a topic, for the commands that run beside it or after it."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1"  # a short run ends before the second compiler pays off
WAIT_SECONDS_MAX = 300.0
COPY = """\
name: copy
trigger: {trigger}
sources:
  records: {{topic: orders, from: earliest}}
sinks:
  copied: {{from: records, topic: copied}}
"""
