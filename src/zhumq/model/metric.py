"""A metric and its samples, in the text format of Prometheus."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric with its current samples, in the Prometheus text format."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...] = ()  # the names of its labels
    # Each with its labels as text; of a histogram, with the end of its name before them.
    samples: list[tuple[str, float]] = field(default_factory=list)

    def render(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines.extend(f"{self.name}{labels} {_number(value)}" for labels, value in self.samples)
        return "\n".join(lines)


def _number(value: float) -> str:
    """All digits: an offset of eight digits is not 1.23457e+07."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def escape_label(value: str) -> str:
    """A label value escaped for the text format: clients choose group names freely."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
