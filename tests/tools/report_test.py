#!/usr/bin/env python3
"""pumice report: one page that needs nothing else, whatever the results say. Where a Chromium is
installed (or named by PUMICE_TEST_BROWSER) the page is loaded, filtered and looked at; with
PUMICE_TEST_SCREENSHOTS=FOLDER pictures are kept."""

import html.parser
import json
import os
import pathlib
import stat
import threading
import unittest

from command_line import BAD_FILE, DOES_NOT_FIT, USAGE, CommandLineTest, needs_file
from headless_browser import Browser, find_browser

# Whoever runs a string of a file as script or markup sets this.
HOSTILE = ("</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
           "<!-- pumice:script -->&lt;b&gt;\u2028\"'`${window.hacked=1}")


def device(name, driver):
    return {"name": name, "uuid": "00", "driver_name": driver, "driver_info": "1.0",
            "api_version": "1.3.1", "type": "discrete", "class": "gpu", "limit": ""}


def model_record(gpu, model, n_prompt, n_gen, depth, speed, **more):
    speeds = [speed * factor for factor in (0.98, 1.0, 1.03)]
    return {"build_commit": "abc1234", "model_filename": f"/models/{model}", "model_type": "llama",
            "model_size": 1, "model_n_params": 2, "n_batch": 512, "n_ubatch": 512, "type_k": "f16",
            "type_v": "f16", "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth,
            "n_parallel": 1, "samples_ns": [1e9] * 3, "samples_ts": speeds, "device": gpu,
            "command": f"pumice bench -m {model}", **more}


def ops_report(gpu, scale):
    def op(name, case, size, flops, limit_ns, speed):
        return {"op": name, "case": case, "bytes": size, "flops": flops, "limit": "bandwidth",
                "limit_ns": limit_ns, "labels": [f"{name}.fast"],
                "samples_ns": [limit_ns / speed, limit_ns / speed * 1.1, limit_ns / speed * 1.2]}
    def peak(name, unit, size, flops, ns):
        return {"name": name, "unit": unit, "bytes": size, "flops": flops,
                "samples_ns": [ns, ns * 1.1]}
    return {"bench": "ops", "build_commit": "abc1234", "device": gpu, "clock": "device",
            "peaks": [peak("read bandwidth", "GB/s", 4e9 * scale, 0, 1e7),
                      peak("f32", "TFLOP/s", 0, 3e11 * scale, 1e7),
                      peak("matrix f16", "TFLOP/s", 0, 4e12 * scale, 1e7),
                      peak("dispatch, dependent", "us", 0, 0, 900)],
            "ops": [op("gemv", "Q4_K rows=1 n=4096", 9e6, 34e6, 2.2e4, 0.92),
                    op("gemm", "Q4_K rows=512 n=4096", 20e6, 17e9, 5e4, 0.41),
                    op("attention", "8k causal", 60e6, 60e9, 2e5, 0.1),
                    op("copy", "64 MiB", 128e6, 0, 3e4, 0.99),
                    {"op": "gated_activation", "case": "rows=1", "error": "off by 3", "wrong": True}]}


def serve_report(gpu, scale):
    def arrival(chunk, ttft, gap):
        return {"chunk": chunk, "ttft_s": ttft * scale, "itl_p50_s": gap / 2, "itl_p99_s": gap,
                "itl_max_s": gap * 2, "idle_itl_s": 0.008, "tpot_target_s": 0.02,
                "prefill_iterations": 4, "tokens_per_s": 900}
    return {"bench": "serve", "build_commit": "abc1234", "device": gpu,
            "model_filename": "big.gguf", "long_prompt_tokens": 8192,
            "arrivals": [arrival("adaptive", 1.4, 0.02), arrival("monolithic", 0.9, 0.9),
                         arrival("16", 4, 0.011), arrival("64", 2, 0.014),
                         arrival("256", 1.3, 0.04), arrival("1024", 1.0, 0.15)]}


def sample_files():
    """Two devices, two models, several depths, a failed row, ops, serving, and hostile text."""
    cards = [device("NVIDIA Example 9000", "NVIDIA"), device("AMD Example XT", "RADV")]
    files = {}
    for i, card in enumerate(cards):
        records = []
        for model, size in (("big.gguf", 1), ("small.gguf", 6)):
            for depth in (0, 1024, 4096, 16384):
                slower = size * (1 + i) / (1 + depth / 20000)
                records.append(model_record(card, model, 512, 0, depth, 4000 * slower,
                                            samples_ttft_ns=[1.2e8 / slower, 1.3e8 / slower]))
                records.append(model_record(card, model, 0, 128, depth, 120 * slower))
        files[f"device{i}-model.json"] = records
        files[f"device{i}-ops.json"] = ops_report(card, 1 + i)
        files[f"device{i}-serve.json"] = serve_report(card, 1 / (1 + i))
    files["failed.json"] = [model_record(cards[0], "big.gguf", 64, 0, 0, 77777,
                                         evidence={"passed": False})]
    return files


def hostile_file():
    return [model_record(device(HOSTILE, HOSTILE), HOSTILE, 8, 0, 0, 5, build_commit=HOSTILE,
                         error=HOSTILE, model_type=HOSTILE, options={HOSTILE: HOSTILE}),
            {"peaks": [], "device": device(HOSTILE, ""),
             "ops": [{"op": HOSTILE, "case": HOSTILE, "bytes": 1, "flops": 1, "limit": HOSTILE,
                      "limit_ns": 1, "labels": [HOSTILE], "samples_ns": [1]}]}]


class Structure(html.parser.HTMLParser):
    """Elements of a page, and the text of those with an id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.at = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        self.at = attributes.get("id") if tag == "script" else None

    def handle_endtag(self, tag):
        self.at = None

    def handle_data(self, text):
        if self.at:
            self.texts[self.at] = self.texts.get(self.at, "") + text


class ReportTest(CommandLineTest):
    def make(self, files, name="report.html"):
        paths = [self.write(file, json.dumps(content)) for file, content in files.items()]
        self.ok("report", *paths, "-o", name)
        return self.folder / name


class Page(ReportTest):
    def test_one_file_holds_everything_and_loads_nothing(self):
        text = self.make(sample_files()).read_text()
        page = Structure(text)
        self.assertIn("Chart.js Contributors", text)
        self.assertIn("without restriction", text, "the chart library's licence")
        for tag, attributes in page.elements:
            self.assertNotIn("src", attributes, tag)
            if "href" in attributes:
                self.assertRegex(attributes["href"], r"^(#|data:)", tag)
        self.assertIn("default-src 'none'", text)
        self.assertNotIn("<!-- pumice:", text)
        data = json.loads(page.texts["data"])
        kinds = {row["kind"] for row in data["rows"]}
        self.assertEqual(kinds, {"model", "first_token", "op", "peak", "serve"})
        for row in data["rows"]:
            if row["kind"] == "first_token":
                self.assertEqual(data["rows"][row["of"]]["test"] + ": TTFT", row["test"])

    def test_what_failed_shows_no_number(self):
        data = json.loads(Structure(self.make(sample_files()).read_text()).texts["data"])
        wrong = [row for row in data["rows"] if row["problem"]]
        self.assertEqual(len(wrong), 3)
        for row in wrong:
            self.assertIsNone(row["median"])

    def test_hostile_text_stays_data(self):
        text = self.make({"hostile.json": hostile_file()}).read_text()
        clean = Structure(self.make({"a.json": [hostile_file()[0] | {"options": {}}]}).read_text())
        page = Structure(text)
        self.assertEqual([tag for tag, _ in page.elements], [tag for tag, _ in clean.elements])
        self.assertNotIn("<", page.texts["data"])
        self.assertIn("window.hacked", json.loads(page.texts["data"])["rows"][0]["device"])

    def test_scripts_make_text_nodes_and_never_markup(self):
        folder = pathlib.Path(__file__).resolve().parents[2] / "bench/report"
        for script in folder.glob("*.js"):
            self.assertNotRegex(script.read_text(),
                                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|"
                                r"new Function|srcdoc", script.name)

    def test_what_is_no_regular_file_is_written_to_and_links_lead_on(self):
        results = self.write("a.json", json.dumps(ops_report(device("GPU", "driver"), 1)))
        (self.folder / "page.html").write_text("old")
        (self.folder / "page.html").chmod(0o640)
        (self.folder / "link.html").symlink_to("page.html")
        self.ok("report", results, "-o", "link.html")
        self.assertTrue((self.folder / "link.html").is_symlink())
        self.assertIn("<html", (self.folder / "page.html").read_text())
        self.assertEqual((self.folder / "page.html").stat().st_mode & 0o777, 0o640)
        os.mkfifo(self.folder / "pipe")
        received = []
        reader = threading.Thread(
            target=lambda: received.append((self.folder / "pipe").read_text()), daemon=True)
        reader.start()
        self.ok("report", results, "-o", "pipe")
        reader.join(timeout=10)
        self.assertTrue((self.folder / "pipe").is_fifo())
        self.assertIn("<html", received[0])
        self.assertEqual(self.left_behind(), ["a.json", "link.html", "page.html", "pipe"])

    @needs_file("/dev/stdout")
    def test_the_name_of_standard_output_is_written_to(self):
        results = self.write("a.json", json.dumps(ops_report(device("GPU", "driver"), 1)))
        self.assertIn(b"<html", self.ok("report", results, "-o", "/dev/stdout").stdout)

    def test_a_device_node_stays_one(self):
        results = self.write("a.json", json.dumps(ops_report(device("GPU", "driver"), 1)))
        full = self.folder / "full"  # our own: a mistake here must not cost the machine's
        try:
            os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))
            full.open("wb").close()
        except OSError as error:
            self.skipTest(f"no device nodes here: {error}")
        self.refuses(DOES_NOT_FIT, "report", results, "-o", full, says="No space left on device")
        self.assertTrue(full.is_char_device())

    def test_a_page_never_takes_the_place_of_its_results(self):
        text = json.dumps(ops_report(device("GPU", "driver"), 1))
        results = self.write("a.json", text)
        (self.folder / "soft").symlink_to("a.json")
        os.link(results, self.folder / "hard")
        for output in ("a.json", "soft", "hard", "./a.json"):
            self.refuses(USAGE, "report", "a.json", "-o", output, says="is read too")
        self.assertEqual(results.read_text(), text)

    def test_standard_output_and_mistakes(self):
        path = self.write("a.json", json.dumps([model_record(device("A", "b"), "m", 8, 0, 0, 5)]))
        self.assertIn(b"<!DOCTYPE html>", self.ok("report", path, "-o", "-").stdout)
        self.refuses(USAGE, "report", path, says="--output")
        self.refuses(USAGE, "report", "-o", "x.html", says="files")
        self.refuses(BAD_FILE, "report", self.write("b.json", "{}"), "-o", "x.html", says="b.json")
        self.refuses(BAD_FILE, "report", path, "nosuch.json", "-o", "x.html", says="nosuch.json")
        self.assertNotIn("x.html", self.left_behind())


@unittest.skipUnless(find_browser(), "no Chromium here (Debian: chromium); see PUMICE_TEST_BROWSER")
class InABrowser(ReportTest):
    SIZES = {"desktop": (1280, 900), "phone": (390, 844)}

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(find_browser())
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def load(self, path, size="desktop", dark=False):
        page = self.browser.open(path, *self.SIZES[size], dark=dark, mobile=size == "phone")
        self.addCleanup(lambda: self.assertEqual(page.complaints(), []))
        return page

    def keep(self, page, name):
        folder = os.environ.get("PUMICE_TEST_SCREENSHOTS")
        if folder:
            page.screenshot(pathlib.Path(folder) / f"{name}.png")

    @staticmethod
    def rows(page, section):
        return page.evaluate(f"[...document.querySelectorAll('#{section} tbody tr')]"
                             ".map(row => row.innerText)")

    @staticmethod
    def choose(page, name, value):
        page.evaluate(f"(() => {{ const c = document.getElementById('filter-{name}');"
                      f"c.value = {json.dumps(value)};"
                      "c.dispatchEvent(new Event('input', {bubbles: true})); })()")
        page.settle()

    def test_every_chart_has_ink_and_fits_at_every_size_and_theme(self):
        path = self.make(sample_files())
        for size in self.SIZES:
            for dark in (False, True):
                with self.subTest(size=size, dark=dark):
                    page = self.load(path, size, dark)
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    self.assertLessEqual(wide, self.SIZES[size][0], "the page scrolls sideways")
                    for section in ("depth", "roofline", "chunks"):
                        ink = page.evaluate(f"""(() => {{
                            const canvas = document.querySelector('#{section} canvas');
                            const {{width, height}} = canvas;
                            const seen = new Set(new Uint32Array(canvas.getContext('2d')
                                .getImageData(0, 0, width, height).data.buffer));
                            return width > 200 && height > 200 ? seen.size : 0; }})()""")
                        self.assertGreater(ink, 10, section)
                    self.keep(page, f"{size}-{'dark' if dark else 'light'}")

    def test_charts_are_named_and_have_a_table_beside_them(self):
        page = self.load(self.make(sample_files()))
        for section, n in (("depth", 32), ("roofline", 6), ("chunks", 12)):
            label = page.evaluate(f"document.querySelector('#{section} canvas').ariaLabel")
            self.assertIn("table that follows", label)
            rows = page.evaluate(f"document.querySelector('#{section} details table')"
                                 ".querySelectorAll('tbody tr').length")
            self.assertEqual(rows, n, section)

    def test_what_failed_says_so_and_has_no_number(self):
        page = self.load(self.make(sample_files()))
        failed = [row for row in self.rows(page, "ledger") if "wrong logits" in row]
        self.assertEqual(len(failed), 1)
        self.assertNotIn("77", failed[0])
        self.assertIn("off by 3", "".join(self.rows(page, "ops")))

    def test_filters_hide_rows_everywhere_and_are_kept_in_the_address(self):
        path = self.make(sample_files())
        page = self.load(path)
        self.assertEqual(len(self.rows(page, "ledger")), 33)
        self.choose(page, "device", "AMD Example XT")
        self.assertEqual(len(self.rows(page, "ledger")), 16)
        self.assertNotIn("NVIDIA", "".join(self.rows(page, "ledger")))
        self.assertNotIn("NVIDIA", page.evaluate("document.querySelector('#ops').innerText"))
        self.choose(page, "model", "big.gguf")
        self.assertEqual(len(self.rows(page, "ledger")), 8)
        self.choose(page, "test", "tg128")
        self.assertEqual(len(self.rows(page, "ledger")), 4)
        self.assertEqual(self.rows(page, "ops"), [])
        self.choose(page, "text", "D4096")
        self.assertEqual(len(self.rows(page, "ledger")), 1)
        address = page.evaluate("location.hash")
        self.assertIn("text=D4096", address)
        page.evaluate("document.querySelector('#filters [type=reset]').click()")
        page.wait("document.querySelectorAll('#ledger tbody tr').length === 33")
        self.choose(page, "test", "gemv")
        self.assertEqual(self.rows(page, "ledger"), [])
        self.assertEqual(len(self.rows(page, "ops")), 1)

    def test_a_column_sorts_from_the_keyboard(self):
        page = self.load(self.make(sample_files()))
        page.evaluate("document.querySelectorAll('#ledger th button')[3].focus()")
        page.key("Enter", "\r")
        speeds = self.speeds(page)
        self.assertEqual(speeds, sorted(speeds))
        page.key("Enter", "\r")
        self.assertEqual(self.speeds(page), sorted(speeds, reverse=True))
        sort = page.evaluate("document.querySelectorAll('#ledger thead th')[3].ariaSort")
        self.assertEqual(sort, "descending")

    def speeds(self, page):
        texts = page.evaluate("[...document.querySelectorAll('#ledger td[data-label=\"t/s\"]')]"
                              ".map(cell => cell.innerText)")
        return [float(text.split("±")[0].replace(",", "")) for text in texts if "±" in text]

    def test_the_tab_key_reaches_filters_tables_and_details(self):
        page = self.load(self.make(sample_files()))
        reached = set()
        for _ in range(60):
            page.key("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        for name in ("theme", "filter-device", "filter-text", "SUMMARY", "DIV", "BUTTON", "A"):
            self.assertIn(name, reached)

    def test_the_theme_button_redraws_in_the_other_theme(self):
        page = self.load(self.make(sample_files()))
        background = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(background)
        page.evaluate("document.getElementById('theme').click()")
        page.settle()
        self.assertNotEqual(page.evaluate(background), before)
        self.assertEqual(page.evaluate("document.getElementById('theme').textContent"), "Light")

    def test_hostile_text_is_shown_and_never_run(self):
        path = self.make({"hostile.json": hostile_file()} | sample_files())
        for size in self.SIZES:
            page = self.load(path, size)
            self.assertIsNone(page.evaluate("window.hacked ?? null"))
            self.assertEqual(page.evaluate("document.images.length"), 0)
            self.assertIn("<img src=x onerror", "".join(self.rows(page, "ledger")))
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"),
                                 self.SIZES[size][0])
            self.keep(page, f"hostile-{size}")

    def test_sections_without_data_say_what_would_fill_them(self):
        page = self.load(self.make({"a.json": [model_record(device("A", "b"), "m", 8, 0, 0, 5)]}))
        for section, words in (("depth", "-d 0-4096"), ("roofline", "--ops"), ("chunks", "--serve"),
                               ("ops", "--ops")):
            text = page.evaluate(f"document.querySelector('#{section} .body').innerText")
            self.assertIn(words, text)

    def test_the_same_device_under_two_drivers_is_two_devices(self):
        files = {f"{driver}.json": [model_record(device("llvmpipe", driver), "m", 8, 0, 0, 5)]
                 for driver in ("Mesa 22", "Mesa 25")}
        page = self.load(self.make(files))
        self.assertEqual(page.evaluate("document.getElementById('filter-device').length"), 3)


if __name__ == "__main__":
    unittest.main()
