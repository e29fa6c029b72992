#!/usr/bin/env python3
"""Two or more servers under the same load, in turns, and how they compare.

    bench/serve_beside.py -m model.gguf \\
      --server 'pumice=build/release/tools/pumice serve -m {model} --port {port} -np 16' \\
      --server 'llama.cpp=GGML_VK_VISIBLE_DEVICES=0 /path/to/llama-server -m {model} --port {port} -np 16 -ngl 99' \\
      --clients 1,4,16 --rounds 6 -o r.json
    bench/serve_beside.py --server a=http://127.0.0.1:8080 --server b=http://127.0.0.1:8081

A server is NAME=COMMAND or NAME=URL. In a command {port} becomes a free port and {model} the file of -m; words like
VAR=value before the program are its environment. It is started for its turn of each round, warmed up, and ended, so
that servers never run beside one another; one at a URL stays as it is. In a turn `pumice bench --server` sends the
load once for each number of --clients, chat-like: prompts that begin alike (--prefix-tokens, of --prefixes kinds) and
go on each by itself. Every server gets the same requests in a round, and each round has others. The next round begins
with the next server, so that what drifts falls on all.

A ratio is the median of the rounds' ratios, of the first server over another for tokens a second, of the other over
the first for times: above 1 the first is better. Its interval is as in bench/peers.py: 97 % needs six rounds.

Exit code: 0, or 1 if a server or a request failed, 2 usage.
"""

import argparse
import contextlib
import datetime
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import peers

# What is compared: where it is in a report of `pumice bench --server`, and whether more is better.
MEASURES = {"output tokens/s": (("output_tokens_per_s",), True), "TTFT p50 ms": (("ttft_ms", "p50"), False),
            "TTFT p99 ms": (("ttft_ms", "p99"), False), "gap p50 ms": (("itl_ms", "p50"), False),
            "gap p99 ms": (("itl_ms", "p99"), False)}


class Server:
    """One side: how it is started, what it did, and what went wrong."""

    def __init__(self, text, model):
        self.name, separator, self.what = text.partition("=")
        if not self.name or not separator or not self.what:
            raise ValueError(f"--server takes NAME=COMMAND or NAME=URL, not '{text}'")
        self.is_url = self.what.startswith(("http://", "https://"))
        self.model = model
        self.failures = []

    @contextlib.contextmanager
    def running(self, timeout_s):
        """Its URL, while it runs."""
        if self.is_url:
            yield self.what
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        program = peers.Program(self.name, self.what.replace("{port}", str(port)).replace("{model}", self.model or ""))
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(program.words, env={**os.environ, **program.environment},
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                wait_for(f"http://127.0.0.1:{port}", process, timeout_s)
                yield f"http://127.0.0.1:{port}"
            except RuntimeError as error:
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                raise RuntimeError(f"{error}: {lines[-1] if lines else 'no message'}") from error
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def wait_for(url, process, timeout_s):
    """Until it answers that it is well."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        with contextlib.suppress(OSError, urllib.error.URLError):
            with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.1)
    raise RuntimeError(f"the server does not answer in {timeout_s:g} s")


def load(options, url, n_clients, n_requests, seed):
    """The report of one load."""
    command = [*shlex.split(options.pumice), "bench", "--server", url, "--clients", str(n_clients), "--requests",
               str(n_requests), "--load-seed", str(seed), "--prefixes", str(options.prefixes), "--prefix-tokens",
               str(options.prefix_tokens), "--prompt-tokens", str(options.prompt_tokens), "--output-tokens",
               str(options.output_tokens), "-o", "json"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end of the load after {options.timeout:g} s") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"pumice bench --server: exit code {done.returncode}: "
                           f"{lines[-1] if lines else 'no message'}") from None


def turn(options, server, number):
    """Its reports of a round, by clients."""
    reports = {}
    try:
        with server.running(options.timeout) as url:
            load(options, url, max(options.clients), max(options.clients), 0)
            for i, n_clients in enumerate(options.clients):
                seed = 1 + number * len(options.clients) + i
                report = load(options, url, n_clients, options.requests * n_clients, seed)
                if report["failed"]:
                    server.failures.append(f"{n_clients} clients: {report['failed']} of {report['requests']} requests "
                                           f"failed: {report['errors']}")
                # Some servers call a model by its path, which says nothing elsewhere.
                report["model"] = os.path.basename(report.get("model", ""))
                reports[n_clients] = report
    except (RuntimeError, OSError) as error:
        server.failures.append(str(error))
    return reports


def value_of(report, path):
    for key in path:
        report = report[key]
    return report


def compare(rounds, servers, clients):
    """Ratios of the first server and each other, for each number of clients and measure."""
    rows = []
    first = servers[0].name
    for n_clients in clients:
        for other in servers[1:]:
            pairs = [(of_round[first][n_clients], of_round[other.name][n_clients]) for of_round in rounds
                     if n_clients in of_round[first] and n_clients in of_round[other.name]]
            for measure, (path, more_is_better) in MEASURES.items():
                values = [(value_of(mine, path), value_of(theirs, path)) for mine, theirs in pairs]
                values = [(mine, theirs) for mine, theirs in values if mine and theirs]
                if not values:
                    continue
                ratios = [mine / theirs if more_is_better else theirs / mine for mine, theirs in values]
                low, high, coverage = peers.interval(ratios)
                rows.append({"clients": n_clients, "measure": measure, "peer": other.name,
                             "median": statistics.median(mine for mine, _ in values),
                             "peer_median": statistics.median(theirs for _, theirs in values),
                             "ratio": statistics.median(ratios), "low": low, "high": high, "coverage": coverage,
                             "round_ratios": ratios})
    return rows


def measure(options, servers):
    rounds = []
    for number in range(options.rounds):
        of_round = {}
        first = number % len(servers)
        for server in servers[first:] + servers[:first]:
            print(f"serve_beside: round {number + 1} of {options.rounds}: {server.name}", file=sys.stderr)
            of_round[server.name] = turn(options, server, number)
        rounds.append(of_round)
        if number == 0 and not all(of_round.values()):
            break
    load_of = {name: getattr(options, name) for name in ("requests", "prefixes", "prefix_tokens", "prompt_tokens",
                                                         "output_tokens")}
    return {"bench": "serve-beside", "model": os.path.basename(options.model or ""), "load": load_of,
            "clients": options.clients, "started": options.started, "rounds": len(rounds), "note": options.note,
            "servers": [{"name": server.name, "command": server.what, "failures": server.failures}
                        for server in servers],
            "ratios": compare(rounds, servers, options.clients),
            "loads": [{"round": number, "peer": name, **report} for number, of_round in enumerate(rounds)
                        for name, reports in of_round.items() for report in reports.values()]}


def to_markdown(result):
    first = result["servers"][0]["name"]
    lines = [f"| clients | measure | {first} | peer | its | ratio | interval | rounds |",
             "|---:|---|---:|---|---:|---:|---:|---:|"]
    lines += [f"| {row['clients']} | {row['measure']} | {row['median']:.4g} | {row['peer']} | {row['peer_median']:.4g} | "
              f"{row['ratio']:.2f} | {row['low']:.2f} – {row['high']:.2f} ({row['coverage'] * 100:.0f} %) | "
              f"{len(row['round_ratios'])} |" for row in result["ratios"]]
    for server in result["servers"]:
        for why in dict.fromkeys(server["failures"]):
            lines += ["", f"{server['name']} failed: {why}"]
    return "\n".join(lines) + "\n"


def parse_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="what {model} in a command becomes")
    parser.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND|URL")
    parser.add_argument("--clients", default="1,4,16", metavar="LIST")
    parser.add_argument("--requests", type=int, default=8, help="of each client, in the mean (default 8)")
    parser.add_argument("--prefixes", type=int, default=4)
    parser.add_argument("--prefix-tokens", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="of a start and of a load (default 1800)")
    parser.add_argument("--pumice", default="build/release/tools/pumice", metavar="COMMAND", help="what sends the load")
    parser.add_argument("--note", default="", help="kept in the record: versions, say, and the driver")
    parser.add_argument("-o", "--output", metavar="FILE", help="JSON of everything")
    options = parser.parse_args()
    try:
        options.clients = [int(n) for n in options.clients.split(",")]
        servers = [Server(text, options.model) for text in options.server]
    except ValueError as error:
        parser.error(str(error))
    if min(options.clients) < 1 or options.requests < 1 or options.rounds < 1:
        parser.error("--clients, --requests and --rounds are at least 1")
    if len(servers) < 2 or len({server.name for server in servers}) < len(servers):
        parser.error("--server is given for each of two servers or more, with names of their own")
    return options, servers


def main():
    options, servers = parse_command_line()
    options.started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    result = measure(options, servers)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    print(to_markdown(result), end="")
    return 1 if any(server.failures for server in servers) or not result["ratios"] else 0


if __name__ == "__main__":
    sys.exit(main())
