"""Compares an archive with its topic, offset by offset: every record once, and unchanged."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.storagelevel import StorageLevel

PLACE: Final = ("topic", "partition")
MISSING: Final = "missing"  # only the broker has it, and the archive has later records
LAG: Final = "lag"  # only the broker has it, and the archive has no later records
TWICE: Final = "twice"  # the archive has it more than once
DIFFERENT: Final = "different"  # key, value, headers or timestamp differ
STRAY: Final = "stray"  # only the archive has it, and the broker has earlier records
EXPIRED: Final = "expired"  # only the archive has it: the broker has deleted it


def offsets(
    broker: DataFrame, archive: DataFrame, topic: str, compacted: str = "false"
) -> DataFrame:
    """One row for each offset that either side has, with the kind of its finding, or null.

    Records that the broker has deleted can only be checked for gaps and duplicates in the archive.
    Compaction deletes records in the middle too, so a compacted topic has no strays.
    """
    topics = [name.strip() for name in topic.split(",")]
    archived = archive.where(F.col("topic").isin(topics))
    both = _marked(broker, sent=1).unionByName(_marked(archived, sent=0))
    counted = both.groupBy(*PLACE, "offset").agg(
        F.sum("sent").alias("sent"),
        F.sum("kept").alias("kept"),
        (F.min("content") == F.max("content")).alias("same"),
    )
    counted = counted.persist(StorageLevel.MEMORY_AND_DISK)
    is_sent, is_kept = F.col("sent") > 0, F.col("kept") > 0
    bounds = counted.groupBy(*PLACE).agg(
        F.min(F.when(is_sent, F.col("offset"))).alias("broker_first"),
        F.max(F.when(is_sent, F.col("offset"))).alias("broker_last"),
        F.max(F.when(is_kept, F.col("offset"))).alias("archive_last"),
    )
    is_old = F.col("broker_first").isNull() | (F.col("offset") < F.col("broker_first"))
    stray = F.lit(None) if compacted == "true" else F.lit(STRAY)
    kind = (
        F.when(F.col("kept") > 1, TWICE)
        .when(is_sent & is_kept, F.when(~F.col("same"), DIFFERENT))
        .when(is_sent & (F.col("offset") > F.coalesce("archive_last", F.lit(-1))), LAG)
        .when(is_sent, MISSING)
        .when(is_old, EXPIRED)
        # The archive may have grown after the broker's end was read.
        .when(F.col("offset") <= F.col("broker_last"), stray)
    )
    joined = counted.join(F.broadcast(bounds), list(PLACE))
    return joined.select(*PLACE, "offset", "sent", "kept", "broker_first", kind.alias("kind"))


def findings(judged: DataFrame, lag_max: str = "0") -> DataFrame:
    """What is wrong, as ranges of offsets. Lag counts if a partition has more than lag_max."""
    wrong = judged.where(F.col("kind").isNotNull() & (F.col("kind") != EXPIRED))
    in_order = Window.partitionBy(*PLACE, "kind").orderBy("offset")
    # Consecutive offsets have the same difference to their row number.
    numbered = wrong.withColumn("island", F.col("offset") - F.row_number().over(in_order))
    ranges = numbered.groupBy("kind", *PLACE, "island").agg(
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.count("*").alias("offsets"),
    )
    ranges = ranges.drop("island").unionByName(_gaps_before_the_broker(judged))
    whole = Window.partitionBy("kind", *PLACE)
    behind = ranges.withColumn("total", F.sum("offsets").over(whole))
    is_wrong = (F.col("kind") != LAG) | (F.col("total") > int(lag_max))
    # A lag goes away by itself, so it comes last.
    order = (F.col("kind") == LAG, "kind", *PLACE, "first_offset")
    return behind.where(is_wrong).drop("total").orderBy(*order)


def summary(judged: DataFrame) -> DataFrame:
    """One row for each partition."""

    def number(condition: Column) -> Column:
        return F.sum(F.when(condition, 1).otherwise(0))

    kinds = (MISSING, TWICE, DIFFERENT, STRAY, LAG, EXPIRED)
    counts = [number(F.col("kind") == kind).alias(kind) for kind in kinds]
    return (
        judged.groupBy(*PLACE)
        .agg(
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.sum("sent").alias("records"),
            F.sum("kept").alias("archived"),
            *counts,
        )
        .orderBy(*PLACE)
    )


def _marked(rows: DataFrame, *, sent: int) -> DataFrame:
    """Offsets with a hash of the whole record."""
    # xxhash64 skips nulls; hashing which columns are null keeps key and value apart.
    nulls = [F.col(name).isNull() for name in ("key", "value", "headers")]
    content = F.xxhash64(*nulls, "key", "value", "headers", "timestamp")
    return rows.select(
        *PLACE,
        F.col("offset"),
        F.lit(sent).alias("sent"),
        F.lit(1 - sent).alias("kept"),
        content.alias("content"),
    )


def _gaps_before_the_broker(judged: DataFrame) -> DataFrame:
    """The gaps in the archive among the offsets that the broker has deleted."""
    old = judged.where(
        (F.col("kept") > 0)
        & (F.col("broker_first").isNull() | (F.col("offset") < F.col("broker_first")))
    )
    following = F.lead("offset").over(Window.partitionBy(*PLACE).orderBy("offset"))
    gaps = old.withColumn("next", F.coalesce(following, F.col("broker_first")))
    return gaps.where(F.col("next") > F.col("offset") + 1).select(
        F.lit(MISSING).alias("kind"),
        *PLACE,
        (F.col("offset") + 1).alias("first_offset"),
        (F.col("next") - 1).alias("last_offset"),
        (F.col("next") - F.col("offset") - 1).alias("offsets"),
    )
