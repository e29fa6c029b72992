#!/usr/bin/env python3
"""The Python package on the built library (PUMICE_LIBRARY), with the bundled model."""

import asyncio
import contextlib
import dataclasses
import enum
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import typing
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests")]

import pumice  # noqa: E402
from adapter import adapter_bytes  # noqa: E402
from pumice import _abi, _library  # noqa: E402

MODEL = ROOT / "models/pumice-stories.gguf"
PROMPT = "Once upon a time"


class Handles(unittest.TestCase):
    def test_what_fails_says_what_and_why(self):
        with self.assertRaises(pumice.Error) as caught:
            pumice.Device("no such device")
        self.assertEqual(caught.exception.status, "NO_DEVICE")
        self.assertIn("no such device", str(caught.exception))

    def test_the_package_is_what_the_header_says(self):
        subprocess.run([sys.executable, "-B", ROOT / "tools/bindings.py", "--check"], check=True)
        self.assertEqual(pumice.version(), pumice.__version__)
        self.assertEqual(len(_abi.FUNCTIONS), len(re.findall(r"^PUMICE_API", (
            ROOT / "runtime/include/pumice/pumice.h").read_text(), re.MULTILINE)))

    def test_a_library_that_is_missing_is_an_import_error(self):
        done = subprocess.run([sys.executable, "-B", "-c", "import pumice"], capture_output=True, text=True, check=False,
                              env={**os.environ, "PUMICE_LIBRARY": "/nowhere/libpumice.so", "PYTHONPATH": str(HERE.parent)})
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: no libpumice: /nowhere/libpumice.so", done.stderr)


class Schemas(unittest.TestCase):
    def test_of_types(self):
        class Size(enum.Enum):
            SMALL = "s"
            LARGE = "l"

        @dataclasses.dataclass
        class Pet:
            name: str
            legs: int | None
            tags: list[str]
            size: Size
            sound: typing.Literal["woof", "meow"]

        class Modelled:
            @classmethod
            def model_json_schema(cls):
                return {"type": "string"}

        schema = pumice.schema_of(Pet)
        self.assertEqual(schema["required"], ["name", "legs", "tags", "size", "sound"])
        self.assertEqual(schema["properties"]["legs"], {"anyOf": [{"type": "integer"}, {"type": "null"}]})
        self.assertEqual(schema["properties"]["tags"], {"type": "array", "items": {"type": "string"}})
        self.assertEqual(schema["properties"]["size"], {"enum": ["s", "l"]})
        self.assertEqual(schema["properties"]["sound"], {"enum": ["woof", "meow"]})
        self.assertEqual(pumice.schema_of(Modelled), {"type": "string"})
        self.assertEqual(pumice.schema_of(dict[str, float]), {"type": "object", "additionalProperties": {"type": "number"}})
        with self.assertRaises(TypeError):
            pumice.schema_of(set)


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        try:
            cls.device = cls.stack.enter_context(pumice.Device())
        except pumice.Error as error:
            raise unittest.SkipTest(f"no usable Vulkan device: {error}") from error
        cls.model = cls.stack.enter_context(cls.device.load(MODEL))
        cls.engine = cls.stack.enter_context(cls.model.engine(n_sequences=4, context_tokens=512))
        cls.text = cls.engine.generate(PROMPT, max_tokens=24).wait().text

    def test_pieces_are_the_text(self):
        answer = self.engine.generate(PROMPT, max_tokens=24, log_probs=2)
        pieces = list(answer)
        self.assertGreater(len(pieces), 4)
        self.assertEqual("".join(pieces), self.text)
        self.assertEqual(answer.text, self.text)
        self.assertEqual(answer.end_reason, "length")
        self.assertEqual(answer.usage["generated_tokens"], 24)
        self.assertEqual(len(answer.tokens), 24)
        self.assertEqual(len(answer.log_probs), 24)
        self.assertLess(answer.log_probs[0][1][1][1], 0)
        self.assertEqual(self.model.detokenize(answer.tokens).strip(), self.text.strip())

    def test_adapters_are_named(self):
        # An adapter that adds nothing says what the model says, and one that adds much does not.
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "other.gguf"
            other.write_bytes(adapter_bytes(0.5))
            adapters = {"same": adapter_bytes(0.0), "other": (other, 2), "twice": adapter_bytes(1.0)}
            with self.device.load(MODEL, adapters=adapters) as model:
                with model.engine(context_tokens=128, n_sequences=2) as engine:
                    said = {name: engine.generate(PROMPT, max_tokens=24, adapter=name) for name in (None, *adapters)}
                    said = {name: answer.wait().text for name, answer in said.items()}
                    with engine.session(adapter="other") as session:
                        self.assertEqual(session.go_on(PROMPT, max_tokens=24).wait().text, said["other"])
                    with self.assertRaisesRegex(pumice.Error, "unknown adapter \"none\": expected same, other"):
                        engine.generate(PROMPT, adapter="none")
        self.assertEqual(said[None], self.text)
        self.assertEqual(said["same"], self.text)
        self.assertNotEqual(said["other"], self.text)
        self.assertEqual(said["twice"], said["other"])
        with self.assertRaisesRegex(ValueError, "adapter none: with a scale of 0"):
            self.device.load(MODEL, adapters={"none": ("none.gguf", 0)})

    def test_infos_and_tokens(self):
        self.assertIn(self.device.info.name, [one.name for one in pumice.devices()])
        self.assertGreater(self.model.info.n_vocabulary, 100)
        tokens = self.model.tokenize(PROMPT)
        self.assertEqual(self.engine.generate(tokens, max_tokens=24).wait().text, self.text)
        self.assertEqual(self.model.tokenize("", special=False), [])
        small, large = (self.device.estimate(MODEL, context_tokens=256, n_sequences=n) for n in (1, 4))
        self.assertTrue(small.fits)
        self.assertEqual((small.context_tokens, large.kv_bytes), (256, 4 * small.kv_bytes))
        self.assertGreater(self.engine.stats()["steps"], 0)
        self.assertTrue(all(level in ("debug", "info", "warning", "error") for level, _ in self.device.log()))

    def test_models_in_archives_and_in_memory(self):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as writing:
            writing.write(MODEL, "assets/a.gguf")
        with zipfile.ZipFile(archive) as reading:
            with self.device.load("assets/a.gguf", open_file=reading.open) as model, model.engine() as engine:
                self.assertEqual(engine.generate(PROMPT, max_tokens=24).wait().text, self.text)
            with self.assertRaises(pumice.Error) as caught:
                self.device.load("assets/b.gguf", open_file=reading.open)
            self.assertEqual(caught.exception.status, "BAD_FILE")
            self.assertIsInstance(caught.exception.__cause__, KeyError)
        with self.device.load(memory=MODEL.read_bytes()) as model, model.engine() as engine:
            self.assertEqual(engine.generate(PROMPT, max_tokens=24).wait().text, self.text)

    def test_models_that_are_loaded_meanwhile(self):
        with self.device.begin_load(MODEL) as loading:
            while not (progress := loading.wait(0.001)).ended:
                self.assertLessEqual(progress.done_bytes, progress.total_bytes)
            self.assertEqual(progress.done_bytes, progress.total_bytes)
            with loading.take() as model, model.engine() as engine:
                self.assertEqual(engine.generate(PROMPT, max_tokens=24).wait().text, self.text)
        opened = threading.Event()

        def open_late(name):
            opened.wait(30)
            return open(name, "rb")

        with self.device.begin_load(MODEL, open_file=open_late) as loading:
            loading.cancel()
            loading.cancel()
            opened.set()
            with self.assertRaises(pumice.Error) as caught:
                loading.take()
            self.assertEqual(caught.exception.status, "CANCELLED")

    def test_vectors_of_texts(self):
        with self.device.load(MODEL, embeds=True, pooling="mean") as model, model.embedder(text_tokens=64) as embedder:
            vectors = embedder.embed(["The dog ran home.", "A cat slept.", "The dog ran home."])
            self.assertEqual([len(vector) for vector in vectors], [embedder.width] * 3)
            self.assertAlmostEqual(sum(x * y for x, y in zip(vectors[0], vectors[2])), 1, places=4)
            self.assertLess(sum(x * y for x, y in zip(vectors[0], vectors[1])), 0.999)
            self.assertEqual(embedder.embed([]), [])

    def test_the_self_test(self):
        # Without a folder, where the verdict would be kept that other tests' devices go by.
        with pumice.Device(cache_directory="") as device:
            result = device.self_test(["rms_norm"])
        self.assertGreater(result.n_passed, 0)
        self.assertEqual((result.n_failed, result.n_errors), (0, 0))

    def test_guesses_and_latencies(self):
        with self.model.engine(draft_model=MODEL) as engine:
            self.assertEqual(engine.generate(PROMPT, max_tokens=24, speculation="draft", salt="s").wait().text, self.text)
            self.assertGreater(engine.stats()["accepted_tokens"], 0)
            slow = engine.generate(PROMPT, max_tokens=24, speculation="draft", max_draft_tokens=1,
                                   max_tokens_per_second=50).wait()
            self.assertGreater(slow.usage["total_s"], 0.4)
            self.assertLessEqual(slow.usage["accepted_tokens"], slow.usage["drafted_tokens"])
            self.assertLessEqual(slow.usage["drafted_tokens"], 12)
            self.assertEqual(engine.latency("first_token")["count"], 2)
            self.assertGreater(engine.latency("total")["max_us"], engine.latency("first_token")["max_us"])

    def test_choices_and_scores_of_a_prompt(self):
        first = self.engine.generate(PROMPT, max_tokens=24, temperature=0.9, seed=1)
        second = self.engine.generate(PROMPT, max_tokens=24, temperature=0.9, seed=2, shares_prompt_with=first)
        self.assertNotEqual(first.wait().text, second.wait().text)
        self.assertEqual(second.usage["cached_tokens"], second.usage["prompt_tokens"])
        again = self.engine.generate(PROMPT, max_tokens=24, temperature=0.9, seed=2).wait()
        self.assertEqual(second.text, again.text)
        scored = self.engine.generate(PROMPT, max_tokens=24, scores=True, log_probs=0).wait()
        self.assertEqual(scored.text, self.text)
        tokens = self.model.tokenize(PROMPT)
        self.assertEqual([token for token, _ in scored.scores], tokens[1:])
        self.assertTrue(all(log_prob <= 0 for _, log_prob in scored.scores))
        self.assertEqual((len(scored.log_probs), scored.log_probs[0][1]), (24, []))
        self.assertGreaterEqual(scored.computed_tokens, len(tokens) + 23)
        self.assertEqual(scored.usage["forgotten_questions"], 0)

    def test_kernels_that_are_compiled_later(self):
        with self.model.engine(context_tokens=64, prewarm_later=1) as engine:
            while not engine.prewarm(1000):
                pass
            self.assertEqual(engine.stats()["kernels_compiled_after_prewarm"], 0)

    def test_sessions_go_back(self):
        with self.engine.session() as session:
            session.say("Tell me of a dog.", max_tokens=6).wait()
            reply = session.say("And of a cat?", max_tokens=6).wait().text
            self.assertEqual(session.turns, 2)
            session.roll_back(1, keep_question=True)
            self.assertEqual(session.go_on(max_tokens=6).wait().text, reply)
            session.roll_back(0)
            self.assertEqual(session.turns, 0)

    def test_many_at_once_and_from_many_threads(self):
        answers = [self.engine.generate(PROMPT, max_tokens=24) for _ in range(6)]
        texts = []
        threads = [threading.Thread(target=lambda answer=answer: texts.append(answer.wait().text)) for answer in answers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(texts, [self.text] * 6)

    def test_async(self):
        async def read():
            return "".join([piece async for piece in self.engine.generate(PROMPT, max_tokens=24)])

        async def both():
            return await asyncio.gather(read(), read())

        self.assertEqual(asyncio.run(both()), [self.text] * 2)

    def test_constraints(self):
        @dataclasses.dataclass
        class Pet:
            name: str
            legs: typing.Literal[0, 2, 4]

        constraint = self.model.constraint(schema=Pet)
        for seed in range(3):
            value = self.engine.generate("A pet: ", constraint=constraint, max_tokens=300, temperature=1.0, top_k=20,
                                         seed=seed).wait()
            if value.end_reason == "stop":
                pet = json.loads(value.text)
                self.assertIsInstance(pet["name"], str)
                self.assertIn(pet["legs"], (0, 2, 4))
        self.assertIn(self.engine.generate("So? ", regex="yes|no").wait().text, ("yes", "no"))
        self.assertEqual(self.engine.generate("So? ", grammar='root ::= "maybe"').wait().text, "maybe")
        with self.assertRaises(pumice.Error) as caught:
            self.model.constraint(schema={"type": "object", "uniqueItems": True, "$dynamicRef": "#a"})
        self.assertEqual(caught.exception.status, "INVALID_ARGUMENT")
        with self.assertRaises(TypeError):
            self.model.constraint(schema=Pet, regex="a")

    def test_answers_in_parts(self):
        template = ("{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
                    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
                    "{% if enable_thinking %}<think>\n{% endif %}")
        tools = [{"name": "look", "parameters": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
                                                 "additionalProperties": False}}]
        with self.device.load(MODEL, chat_template=template) as model, model.engine(context_tokens=512) as engine:
            self.assertTrue(model.info.has_chat_template)
            with engine.session(system="Be kind.") as session:
                called = session.ask([{"role": "user", "content": "Hi"}], tools=tools, tool_choice="look", max_tokens=100).wait()
                (call,) = called.calls
                self.assertEqual((call["name"], call["complete"], called.content), ("look", True, ""))
                self.assertIn(json.loads(call["arguments"])["n"], (1, 2))
                told = session.ask([{"role": "tool", "tool_call_id": call["id"], "content": "A cat"}], tools=tools,
                                   max_tokens=8).wait()
                self.assertEqual(told.content.strip(), told.text.strip())
                self.assertIn("assistant: <tool_call>", model.detokenize(session.tokens))
            thought = engine.ask([{"role": "developer", "content": "Once"}, {"role": "user", "content": "upon"}],
                                 template_variables={"enable_thinking": True}, max_tokens=8).wait()
            self.assertEqual([part["type"] for part in thought.parts], ["reasoning"])
            self.assertEqual((thought.reasoning.strip(), thought.content), (thought.text.strip(), ""))
            with self.assertRaises(pumice.Error) as caught:
                engine.ask([{"role": "user", "content": "Hi"}], tools=tools, tool_choice="fly")
            self.assertIn('there is no tool "fly"', str(caught.exception))
            with self.assertRaises(ValueError):
                engine.generate("Hi", tools=tools)

    def test_sessions_remember_and_are_saved(self):
        with self.engine.session(seed=3, temperature=0.7) as session:
            first = session.say("A dog ran.", max_tokens=8).wait()
            saved = session.save()
            second = session.say("Then", max_tokens=8).wait()
            self.assertGreater(second.usage["prompt_tokens"], first.usage["prompt_tokens"])
            self.assertEqual(len(session.tokens), second.usage["prompt_tokens"] + 8)
        with self.engine.restore(saved) as again:
            self.assertEqual(again.say("Then", max_tokens=8).wait().text, second.text)

    def test_cancelling_and_stops(self):
        answer = self.engine.generate(PROMPT, max_tokens=300)
        next(answer)
        answer.cancel()
        answer.wait()
        self.assertEqual(answer.end_reason, "cancelled")
        word = self.text.split()[2]
        stopped = self.engine.generate(PROMPT, max_tokens=24, stop=word).wait()
        self.assertEqual((stopped.text, stopped.end_reason), (self.text[:self.text.index(word)], "stop_string"))
        with self.assertRaises(pumice.Error) as caught:
            self.engine.generate(PROMPT, max_tokens=100_000)
        self.assertEqual(caught.exception.status, "DOES_NOT_FIT")
        with self.assertRaises(TypeError):
            self.engine.generate(PROMPT, max_token=3)
        with self.assertRaises(TypeError):
            self.model.engine(contexttokens=3)

    def test_frames(self):
        answer = self.engine.generate(PROMPT, max_tokens=24)
        text = ""
        while not answer.finished:
            self.engine.poll(1000)
            text += answer.take()
        self.assertEqual(text + answer.take(), self.text)

    def test_closed_handles_are_errors(self):
        engine = self.model.engine(context_tokens=64)
        answer = engine.generate(PROMPT, max_tokens=4)
        engine.close()
        engine.close()
        with self.assertRaises(ValueError):
            engine.generate(PROMPT)
        with self.assertRaises(ValueError):
            next(answer)

    def test_the_readme_runs(self):
        programs = re.findall(r"```python\n(.*?)```", (HERE.parent / "README.md").read_text(), re.DOTALL)
        self.assertEqual(len(programs), 2)
        output = io.StringIO()
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "models").symlink_to(ROOT / "models")
            (pathlib.Path(folder) / "pirate.gguf").write_bytes(adapter_bytes(0.5))
            os.chdir(folder)
            try:
                for code in programs:
                    with contextlib.redirect_stdout(output):
                        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})  # pylint: disable=exec-used
            finally:
                os.chdir(here)
        self.assertIn("'generated_tokens'", output.getvalue())
        self.assertRegex(output.getvalue(), r"(?m)^(yes|no)$")
        self.assertIn(self.text[:40], output.getvalue().splitlines()[-1])


class Wheel(unittest.TestCase):
    def test_it_carries_the_library(self):
        try:
            import setuptools  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
            import wheel  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
        except ImportError as error:
            self.skipTest(f"no wheel can be made here: {error}")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "source"
            subprocess.run(["cp", "-r", HERE.parent, source], check=True)
            done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, source],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0 and "No module named pip" in done.stderr:
                self.skipTest("no pip here")
            self.assertEqual(done.returncode, 0, done.stderr)
            names = subprocess.run([sys.executable, "-m", "zipfile", "-l", *pathlib.Path(folder).glob("*.whl")], check=True,
                                   capture_output=True, text=True).stdout
            self.assertIn("pumice/libpumice.so", names)
            self.assertNotIn("py3-none-any", names)


if __name__ == "__main__":
    unittest.main()
