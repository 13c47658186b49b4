"""A line chart as SVG, without any library."""

from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 300, 60, 40, 40, 20
Point = tuple[float, float]


def write_chart(path: Path, title: str, y_name: str, lines: dict[str, Sequence[Point]]) -> None:
    """Write a chart of these lines over time in seconds. The first one is filled."""
    x_max = max(x for points in lines.values() for x, _ in points)
    y_max = max(y for points in lines.values() for _, y in points)

    def place(x: float, y: float) -> str:
        across = LEFT + x / x_max * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - y / y_max * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{down:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{title}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">seconds</text>',
    ]
    for step in range(5):
        x, y = x_max * step / 4, y_max * step / 4
        across, down = place(x, y).split(",")
        base = HEIGHT - BOTTOM
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down}" y2="{down}" stroke="#ddd"/>',
            f'<text x="{LEFT - 8}" y="{float(down) + 4:.1f}" text-anchor="end">{y:.0f}</text>',
            f'<text x="{across}" y="{base + 16}" text-anchor="middle">{x:.1f}</text>',
        ]
    for number, (name, points) in enumerate(lines.items()):
        color = ("#d62728", "#1f77b4", "#2ca02c")[number % 3]
        path_ = " ".join(place(x, y) for x, y in points)
        if number == 0:
            corners = f"{place(points[0][0], 0)} {path_} {place(points[-1][0], 0)}"
            parts.append(f'<polygon points="{corners}" fill="{color}" opacity="0.15"/>')
        parts += [
            f'<polyline points="{path_}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{WIDTH - RIGHT - 8}" y="{TOP + 110 + 18 * number}" text-anchor="end" fill="{color}">{name}</text>',
        ]
    parts += [
        f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{y_name}</text>',
        "</svg>",
    ]
    path.write_text("\n".join(parts) + "\n")
