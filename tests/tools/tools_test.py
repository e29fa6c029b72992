#!/usr/bin/env python3
"""pumice run and chat with tools: what the model is told, and how its answer is told apart."""

import json
import unittest

from command_line import BAD_FILE, STORIES, USAGE, CommandLineTest

# A template as chat models have them. The tests' model is none: what it is to have said, the prompt begins.
TEMPLATE = ("{% for t in tools or [] %}<tool>{{ t | tojson }}</tool>\n{% endfor %}"
            "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
            "{% endif %}{{ m.content }}"
            "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{{ '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% if enable_thinking %}<think>\n{% endif %}{% endif %}")
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}},
         {"type": "function", "function": {"name": "clock"}}]


class Tools(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.model = self.need(STORIES)
        self.flags = ["-m", self.model, "--temp", 0, "--chat-template", self.write("t.jinja", TEMPLATE)]
        self.tools = ["--tools", self.write("tools.json", json.dumps(TOOLS))]

    def run_json(self, *flags, n=12):
        return json.loads(self.ok("run", *self.flags, "-n", n, "--json", *flags).stdout)

    def messages(self, *messages):
        roles = ("role", "content")
        return ["--messages", self.write("m.json", json.dumps([dict(zip(roles, m)) for m in messages]))]

    def prompt_tokens(self, *flags):
        return self.run_json(*flags, n=1)["timings"]["prompt_n"]

    def n_tokens(self, text):
        return len(json.loads(self.ok("tokenize", "-m", self.model, "-p", text, "--ids").stdout))

    def test_a_prompt_is_a_message_and_the_model_is_told_of_the_tools(self):
        plain = self.n_tokens("user: Once\nassistant: ")
        self.assertEqual(self.prompt_tokens("-p", "Once"), plain)
        self.assertGreater(self.prompt_tokens("-p", "Once", *self.tools), plain + 100)
        self.assertEqual(self.prompt_tokens("-p", "Once", *self.tools, "--tool-choice", "none"), plain)

    def test_reasoning_is_apart_from_the_answer(self):
        thinking = ["-p", "Once", "--template-var", "enable_thinking=true"]
        answer = self.run_json(*thinking)
        self.assertEqual(answer["text"], "")
        self.assertGreater(len(answer["reasoning"]), 5)
        self.assertEqual([e["type"] for e in answer["events"]], ["reasoning", "finish"])
        shown = self.ok("run", *self.flags, "-n", 12, *thinking).stdout.decode()
        self.assertEqual(shown, f"<think>{answer['reasoning']}</think>\n")
        without = self.run_json("-p", "Once", "--template-var", "enable_thinking=false")
        self.assertEqual(without["reasoning"], "")
        self.assertGreater(len(without["text"]), 5)

    def test_a_call_is_told_in_events_and_as_openai_has_it(self):
        begun = self.messages(("developer", "Be kind."), ("user", "Rome?"),
                              ("assistant", 'I look.<tool_call>{"name": "weather", "arguments": {"city": "'))
        answer = self.run_json(*begun, *self.tools, "--stop", '"', n=30)
        kinds = [e["type"] for e in answer["events"]]
        self.assertEqual(kinds[:3], ["call_begun", "arguments", "call_ended"])
        [call] = answer["tool_calls"]
        self.assertEqual((call["type"], call["function"]["name"]), ("function", "weather"))
        self.assertEqual(list(json.loads(call["function"]["arguments"])), ["city"])
        self.assertFalse(answer["events"][2]["complete"])
        shown = self.ok("run", *self.flags, *begun, *self.tools, "--stop", '"', "-n", 30).stdout.decode()
        self.assertEqual(shown.splitlines()[0], f"weather {call['function']['arguments']} (broke off)")

    def test_an_answer_that_is_begun_goes_on(self):
        one = self.run_json(*self.messages(("user", "Once"), ("assistant", "Once upon")))
        self.assertEqual(one["timings"]["prompt_n"], self.n_tokens("user: Once\nassistant: Once upon"))
        self.assertEqual(one["events"][0]["type"], "text")
        self.assertEqual(one["text"], one["events"][0]["text"])

    def test_chat_asks_for_the_result_of_a_call(self):
        conversation = {"messages": [
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{}'}},
                {"id": "2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]}]}
        before, after = self.write("before.json", json.dumps(conversation)), self.folder / "after.json"
        small = ["--tools", self.write("small.json", json.dumps([{"name": "weather"}, {"name": "clock"}]))]
        lines = [f"/load {before}", "/tools", "Rain", "9", f"/save {after}", "Thanks"]
        done = self.ok("chat", *self.flags, *small, "-n", 8, stdin="".join(f"{x}\n" for x in lines).encode())
        said = done.stderr.decode()
        self.assertIn("weather\nclock\n", said)
        self.assertEqual(said.count("[8 tokens"), 2, said)
        messages = json.loads(after.read_text())["messages"]
        self.assertEqual([m["role"] for m in messages], ["user", "assistant", "tool", "tool", "assistant"])
        self.assertEqual([(m["tool_call_id"], m["content"]) for m in messages[2:4]], [("1", "Rain"), ("2", "9")])

    def test_a_call_that_has_to_come_is_one_that_its_schema_accepts(self):
        city = {"type": "string", "enum": ["Rome", "Bonn"]}
        tools = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": city, "days": {
            "type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": False}},
                 {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}]
        quick = ["--tools", self.write("few.json", json.dumps(tools)), "--template-var", "enable_thinking=false"]
        few = [*quick, "-p", "Rome?", "-c", 900]
        for format in ("hermes", "qwen-xml", "glm", "lfm2"):
            answer = self.run_json(*few, "--tool-format", format, "--tool-choice", "weather", n=400)
            self.assertEqual((answer["text"], answer["end_reason"]), ("", "stop"), format)
            (call,) = answer["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            self.assertIn(arguments.pop("city"), ("Rome", "Bonn"))
            self.assertIn(arguments.pop("days"), range(1, 10))
            self.assertEqual(arguments, {})
        some = self.run_json(*few, "--tool-choice", "required", n=110)
        self.assertIn(some["tool_calls"][0]["function"]["name"], ("weather", "clock"))
        chat = ["chat", *self.flags, *quick, "-c", 900, "-n", 160, "--tool-choice", "clock"]
        done = self.ok(*chat, stdin=b"Rome?\n9 o'clock\n").stdout.decode()
        self.assertRegex(done, r"\Aclock \{\s*\}\n")
        self.assertEqual(done.count("clock {"), 1)  # what follows its result is free

    def test_what_is_held_to_a_schema_is_the_answer_behind_the_reasoning(self):
        flag = ["-p", "Once", "-j", '{"enum": ["yes", "no"]}']
        held = self.run_json(*flag, "--template-var", "enable_thinking=false")
        self.assertIn(held["text"], ('"yes"', '"no"'))
        self.assertEqual(held["end_reason"], "stop")
        thinks = self.run_json(*flag, "--template-var", "enable_thinking=true")
        self.assertEqual(thinks["text"], "")
        self.assertGreater(len(thinks["reasoning"]), 5)
        # The model is none that ends its reasoning: here it has.
        behind = ["--messages", self.write("b.json", json.dumps([{"role": "user", "content": "Once"}])),
                  "--template-var", "enable_thinking=true", "--chat-template",
                  self.write("over.jinja", TEMPLATE.replace("<think>\n", "<think>so</think>"))]
        over = json.loads(self.ok("run", *self.flags[:4], *behind, "-j", '{"enum": ["yes", "no"]}', "--json").stdout)
        self.assertIn(over["text"], ('"yes"', '"no"'))

    def test_what_is_wrong_is_said(self):
        prompt = ["run", "-m", self.model, "-p", "x"]
        self.refuses(USAGE, *prompt, "--tool-choice", "weather", says="--tool-choice 'weather'")
        self.refuses(USAGE, "run", *self.flags, "-p", "x", *self.tools, "--tool-choice", "moon", says="there is no tool \"moon\"")
        self.refuses(USAGE, *prompt, "--template-var", "thinking", says="expected NAME=VALUE")
        self.refuses(USAGE, *prompt, *self.tools, says="no chat template")
        self.refuses(USAGE, "chat", "-m", self.model, *self.tools, says="no chat template")
        self.refuses(USAGE, "run", *self.flags, "-p", "x", "--tool-format", "latin", says="'latin' is not a format")
        self.refuses(BAD_FILE, "run", *self.flags, "-p", "x", "--tools", self.write("b.json", "[5]"), says="b.json")
        bad = self.write("c.json", '[{"role": "user"}]')
        self.refuses(BAD_FILE, "run", *self.flags, "--messages", bad, says="no \"content\"")
        self.refuses(USAGE, "run", *self.flags, *self.messages(("wizard", "x")), says='role is "wizard"')
        self.refuses(USAGE, "run", *self.flags, "-p", "x", *self.messages(("user", "x")), says="--messages")


if __name__ == "__main__":
    unittest.main()
