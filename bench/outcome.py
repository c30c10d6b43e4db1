"""The outcome of a comparison: medians, ratios, a text and a picture."""

import dataclasses
import datetime
import os
import platform
import re
import statistics
import subprocess
from html import escape

NAMES = ("c", "ours", "list", "reliable", "stream", "beanstalkd")
OURS, THEIRS, LIMIT, INK = "#0072b2", "#d55e00", "#009e73", "#333333"


@dataclasses.dataclass
class Result:
    """One figure: a value for each contestant and pair."""

    figure: object
    values: dict

    def median(self, name):
        values = self.values.get(name)
        return statistics.median(values) if values else None

    def ratios(self):
        """Ours / C within each pair."""
        pairs = zip(self.values.get("ours", ()), self.values.get("c", ()))
        return sorted(ours / theirs for ours, theirs in pairs if theirs)

    def aimed_at(self):
        """What the limit is compared with, or None."""
        if self.figure.limit is None:
            return None
        if self.figure.of == "value":
            return self.median("ours")
        return statistics.median(self.ratios()) if self.ratios() else None

    def verdict(self):
        reached = self.aimed_at()
        if reached is None:
            return ""
        return "met" if reached <= self.figure.limit else "MISSED"

    def aim(self):
        if self.figure.limit is None:
            return ""
        of = "" if self.figure.of == "value" else " C"
        return f"<= {number(self.figure.limit)}{of}"


@dataclasses.dataclass
class Record:
    """A table's results and how they came about."""

    table: str
    results: list
    programs: dict
    lines: list
    command: str
    root: str

    def text(self):
        lines = [
            f"table      {self.table}",
            f"date       {datetime.date.today().isoformat()}",
            f"machine    {machine()}",
            f"system     {platform.system()} {platform.release()}",
            f"commit     {commit(self.root)}",
            f"command    {self.command}",
            *(f"{name:<11}{version(path)}" for name, path in self.programs.items()),
            "",
            *self.table_lines(),
            "",
            "Each figure, pair by pair:",
        ]
        for result in self.results:
            lines.append(f"  {result.figure.title}, {result.figure.unit}")
            for name, values in result.values.items():
                lines.append(f"    {name:<11}{' '.join(map(number, values))}")
        lines += ["", "Command lines of disque-benchmark, without servers and processes:"]
        lines += [f"  {line}" for line in self.lines]
        return "\n".join(lines) + "\n"

    def table_lines(self):
        present = [name for name in NAMES if name in self.programs]
        width = max([len(result.figure.title) for result in self.results] + [10])
        head = f"{'':<{width}} {'unit':>5}" + "".join(f"{name:>11}" for name in present)
        yield head + "   ours/C (least to most)     aim"
        for result in self.results:
            medians = (result.median(name) for name in present)
            line = f"{result.figure.title:<{width}} {result.figure.unit:>5}"
            line += "".join(f"{'-' if value is None else number(value):>11}" for value in medians)
            ratios = result.ratios()
            spread = ""
            if ratios:
                middle = number(statistics.median(ratios))
                spread = f"{middle} ({number(ratios[0])} to {number(ratios[-1])})"
            yield f"{line}   {spread:<24}   {result.aim():<12} {result.verdict()}".rstrip()

    def write(self, folder):
        """Writes the text and, when there are ratios, the picture; returns their paths."""
        os.makedirs(folder, exist_ok=True)
        name = f"{datetime.date.today().isoformat()}-{slug(machine())}-{self.table}"
        files = {f"{name}.txt": self.text()}
        if any(result.ratios() for result in self.results):
            files[f"{name}.svg"] = draw(self)
        for file, content in files.items():
            with open(os.path.join(folder, file), "w") as out:
                out.write(content)
        return [os.path.join(os.path.relpath(folder, self.root), file) for file in files]


def draw(record):
    """A bar for each figure, ours as a part of C's, with its spread and its aim."""
    rows = [result for result in record.results if result.ratios()]
    left, width, step, top = 330, 480, 30, 70
    most = max([1.2] + [min(result.ratios()[-1], 2.0) for result in rows])
    place = lambda ratio: left + width * min(ratio, most) / most
    bottom = top + step * len(rows)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {bottom + 50}"'
        f' font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{left + width + 90}" height="{bottom + 50}" fill="white"/>',
        f'<text x="20" y="28" font-size="16">{escape(record.table)}: ours / C, shorter is better</text>',
        f'<text x="20" y="48">median of {len(rows[0].ratios())} pairs and their spread;'
        f' green: aimed at; {escape(machine())}</text>',
        f'<path d="M{place(1):.1f} {top - 8}V{bottom}" stroke="{THEIRS}" stroke-width="2"/>',
        f'<text x="{place(1):.1f}" y="{bottom + 18}" text-anchor="middle" fill="{THEIRS}">C server</text>',
    ]
    for nth, result in enumerate(rows):
        ratios = result.ratios()
        middle = statistics.median(ratios)
        y = top + step * nth
        svg += [
            f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{escape(result.figure.title)}</text>',
            f'<rect x="{left}" y="{y}" width="{place(middle) - left:.1f}" height="18" fill="{OURS}"/>',
            f'<path d="M{place(ratios[0]):.1f} {y + 9}H{place(ratios[-1]):.1f}" stroke="{INK}"/>',
            f'<text x="{place(max(middle, ratios[-1])) + 6:.1f}" y="{y + 14}">{number(middle)}</text>',
        ]
        if result.figure.of == "ratio" and result.figure.limit is not None:
            aim = place(result.figure.limit)
            svg.append(f'<path d="M{aim:.1f} {y - 4}V{y + 22}" stroke="{LIMIT}" stroke-width="3"/>')
    return "\n".join([*svg, "</svg>"]) + "\n"


def number(value):
    """Three significant digits, and no exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.1g}"


def machine():
    model = platform.machine()
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":")[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores"


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def commit(root):
    ask = lambda *words: subprocess.run(
        ["git", "-C", root, *words], capture_output=True, text=True
    ).stdout.strip()
    changed = " with changes" if ask("status", "--porcelain", "--untracked-files=no") else ""
    return (ask("rev-parse", "--short", "HEAD") or "unknown") + changed


def version(program):
    option = "-v" if os.path.basename(program) == "beanstalkd" else "--version"
    done = subprocess.run([program, option], capture_output=True, text=True)
    lines = (done.stdout or done.stderr).splitlines()
    return f"{os.path.basename(program)}: {lines[0] if lines else 'unknown version'}"
