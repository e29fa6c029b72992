#!/usr/bin/env python3
"""Draw `pumice sim --sweep --json`: a long prompt's time to first token against the gaps it causes.

    pumice sim --sweep --json > sweep.json
    bench/plot_tradeoff.py sweep.json -o sweep.svg

Needs matplotlib (python3-matplotlib).
"""

import argparse
import json
import pathlib


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=pathlib.Path, help="output of pumice sim --sweep --json")
    parser.add_argument("-o", "--output", type=pathlib.Path, default="sweep.svg")
    arguments = parser.parse_args()
    sweep = json.loads(arguments.sweep.read_text())

    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for streams in sorted({row["active_decodes"] for row in sweep["rows"]} - {0}):
        rows = [row for row in sweep["rows"] if row["active_decodes"] == streams]
        fixed = sorted((row for row in rows if not row["adaptive"]),
                       key=lambda row: row["chunk_tokens"])
        line, = axes.plot([row["median_ttft_s"] * 1e3 for row in fixed],
                          [row["itl_p99_s"] * 1e3 for row in fixed], "o-", label=f"{streams} streams")
        for row in fixed:
            axes.annotate(row["chunk_tokens"], (row["median_ttft_s"] * 1e3, row["itl_p99_s"] * 1e3),
                          textcoords="offset points", xytext=(4, 4), fontsize=7)
        for row in rows:
            if row["adaptive"]:
                axes.plot(row["median_ttft_s"] * 1e3, row["itl_p99_s"] * 1e3, "*", markersize=14,
                          color=line.get_color())
    axes.axhline(sweep["tpot_target_s"] * 1e3, linestyle=":", color="gray", label="target")
    axes.set(xscale="log", yscale="log", xlabel="time to first token of the prompt, median, ms",
             ylabel="gap between tokens of the streams, p99, ms",
             title=f"Prompts of {sweep['prompt_tokens']} tokens; numbers are chunk sizes, stars adaptive")
    axes.legend()
    figure.tight_layout()
    figure.savefig(arguments.output)


if __name__ == "__main__":
    main()
