"""Finds the stream that a command is about: its file, its brokers, its checkpoints."""

from pyspark.sql import SparkSession

from zhumq.cli.options import CommandFailed
from zhumq.cli.pipeline_options import StreamOptions
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.library_files import NoSuchPipeline, find_pipeline
from zhumq.pipelines.runner import brokers_of
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import StatusFile, checkpoints_path


def load_stream(word: str, options: StreamOptions) -> Pipeline:
    """The pipeline of a file. Raises CommandFailed if it is no stream."""
    pipeline = load_pipeline(find_pipeline(word), options.values)
    if not pipeline.is_stream:
        raise CommandFailed(
            f"{pipeline.file} has trigger: batch, so each run reads everything: there is no checkpoint"
        )
    return pipeline


def find_stream(word: str, options: StreamOptions) -> Pipeline:
    """The pipeline of a file, or of the name of one that has run with the state folder."""
    try:
        return load_stream(word, options)
    except NoSuchPipeline:
        status = StatusFile(options.state_dir, word).read()
        if status is None:
            raise CommandFailed(
                f"there is no file {word!r}, and no pipeline of that name has run with"
                f" {options.state_dir}: see --state-dir"
            ) from None
        pipeline = load_stream(status.file, options)
        if pipeline.name != word:
            raise CommandFailed(
                f"{status.file} is {pipeline.name!r} with these parameters, not {word!r}: give those"
                " of its run with --set"
            ) from None
    return pipeline


def brokers_for(pipeline: Pipeline, options: StreamOptions) -> Brokers:
    return brokers_of(pipeline, bootstrap=options.bootstrap, security=options.security)


def checkpoints_for(spark: SparkSession, pipeline: Pipeline, options: StreamOptions) -> Checkpoints:
    path = checkpoints_path(options.state_dir, pipeline.name, root=options.checkpoint_root)
    return Checkpoints(spark, path)
