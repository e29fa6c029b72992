// The package on the built library (PUMICE_LIBRARY), with the bundled model (PUMICE_MODEL) and an adapter (PUMICE_ADAPTER).
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import * as pumice from "pumice";

const PROMPT = "Once upon a time";
const { PUMICE_MODEL: MODEL, PUMICE_ADAPTER: ADAPTER } = process.env;
let device, model, engine, text;

before(async () => {
  device = new pumice.Device();
  model = device.load(MODEL);
  engine = model.engine({ nSequences: 4, contextTokens: 512 });
  text = (await engine.generate(PROMPT, { maxTokens: 24 }).wait()).text;
});

after(async () => {
  await engine.close();
  model.close();
  device.close();
  device.close();
});

test("what fails says what and why", async () => {
  assert.throws(() => new pumice.Device({ selector: "no such device" }), (error) =>
    error instanceof pumice.PumiceError && error.status === "no_device" && /no such device/.test(error.message));
  assert.throws(() => device.load("/nowhere/ä.gguf"), { status: "bad_file" });
  assert.throws(() => engine.generate(PROMPT, { maxTokens: 100_000 }), { status: "does_not_fit" });
  assert.throws(() => engine.generate(PROMPT, { maxToken: 3 }), TypeError);
  assert.throws(() => engine.generate(PROMPT, { speculation: "perhaps" }), /must be one of off, lookup, auto/);
  assert.throws(() => model.engine({ contexttokens: 3 }), TypeError);
  assert.throws(() => model.engine({ struct_size: 3 }), TypeError);
  assert.throws(() => device.load(MODEL, { adapters: { fox: MODEL } }),
    /adapter fox: not a LoRA file/);
  assert.throws(() => engine.session({ adapter: "fox" }), /unknown adapter "fox"/);
  await assert.rejects(engine.restore(Buffer.from("abc")), { status: "bad_file" });
  await assert.rejects(engine.setMemoryBudget(1), { status: "does_not_fit" });
});

test("a library that is missing is an error that names it", () => {
  const done = spawnSync(process.execPath, ["-e", 'import("pumice")'], {
    env: { ...process.env, PUMICE_LIBRARY: "/nowhere/libpumice.so" }, encoding: "utf8" });
  assert.equal(done.status, 1);
  assert.match(done.stderr, /\/nowhere\/libpumice.so can't be used: .*PUMICE_LIBRARY/);
});

test("pieces are the text", async () => {
  const answer = engine.generate(PROMPT, { maxTokens: 24, logProbs: 2 });
  const pieces = [];
  for await (const piece of answer) pieces.push(piece);
  assert.ok(pieces.length > 4);
  assert.equal(pieces.join(""), text);
  assert.equal(answer.text, text);
  assert.equal(answer.endReason, "length");
  assert.equal(answer.usage.generatedTokens, 24);
  assert.equal(answer.tokens.length, 24);
  assert.equal(answer.logProbs.length, 24);
  assert.equal(answer.logProbs[3].top.length, 2);
  assert.equal(answer.logProbs[3].top[0].token, answer.tokens[3]);
  assert.ok(answer.logProbs[3].top[1].logProb <= answer.logProbs[3].logProb);
  assert.equal(model.detokenize(answer.tokens).trim(), text.trim());
});

test("infos and tokens", async () => {
  assert.ok(pumice.devices().some((one) => one.name === device.info.name && one.uuid === device.info.uuid));
  assert.ok(model.info.nVocabulary > 100);
  assert.equal((await engine.generate(model.tokenize(PROMPT), { maxTokens: 24 }).wait()).text, text);
  assert.equal(model.tokenize("", { special: false }).length, 0);
  assert.ok(engine.stats.steps > 0);
  assert.ok(device.log().every((line) => ["debug", "info", "warning", "error"].includes(line.level) && line.text));
  assert.equal(pumice.version(), "0.1.0");
  engine.setMode("graphics");
  engine.setMode("fast");
});

test("many at once, and the program goes on", async () => {
  let ticks = 0;
  const clock = setInterval(() => ++ticks, 1);
  const answers = Array.from({ length: 6 }, () => engine.generate(PROMPT, { maxTokens: 24 }));
  for (const answer of await Promise.all(answers.map((one) => one.wait()))) assert.equal(answer.text, text);
  clearInterval(clock);
  assert.ok(ticks > 2);
});

test("constraints", async () => {
  const constraint = model.constraint({ schema: { const: [1, true] } });
  for (const seed of [1, 2]) {
    assert.deepEqual(await engine.generate("So? ", { constraint, temperature: 1, seed }).json(), [1, true]);
  }
  constraint.close();
  assert.throws(() => engine.generate("So? ", { constraint }), /the constraint is closed/);
  assert.match((await engine.generate("So? ", { regex: "yes|no" }).wait()).text, /^(yes|no)$/);
  assert.equal((await engine.generate("So? ", { grammar: 'root ::= "maybe"' }).wait()).text, "maybe");
  assert.throws(() => model.constraint({ grammar: "root ::= missing" }), { status: "invalid_argument" });
  assert.throws(() => model.constraint({ schema: {}, regex: "a" }), TypeError);
});

test("sessions remember and are saved", async () => {
  const session = engine.session({ seed: 3, temperature: 0.7, system: "Be kind.", serviceClass: "interactive" });
  const first = await session.say("A dog ran.", { maxTokens: 8 }).wait();
  const saved = await session.save();
  const second = await session.say("Then", { maxTokens: 8 }).wait();
  assert.ok(second.usage.promptTokens > first.usage.promptTokens);
  assert.equal(session.tokens.length, second.usage.promptTokens + 8);
  session.close();
  const again = await engine.restore(saved);
  assert.equal((await again.say("Then", { maxTokens: 8 }).wait()).text, second.text);
  again.close();
});

test("sessions go back", async () => {
  const session = engine.session();
  await session.say("Tell me of a dog.", { maxTokens: 6 }).wait();
  const reply = (await session.say("And of a cat?", { maxTokens: 6 }).wait()).text;
  assert.equal(session.turns, 2);
  session.rollBack(1, { keepQuestion: true });
  assert.equal((await session.goOn(undefined, { maxTokens: 6 }).wait()).text, reply);
  assert.throws(() => session.rollBack(3), { status: "not_found" });
  session.rollBack(0);
  assert.equal(session.turns, 0);
  session.close();
});

test("models that are loaded meanwhile, and from memory", async () => {
  let ticks = 0;
  const clock = setInterval(() => ++ticks, 1);
  const loading = device.beginLoad("", { memory: readFileSync(MODEL), engine: { contextTokens: 64 } });
  let progress = await loading.wait(0);
  for (; !progress.ended; progress = await loading.wait(0.001)) assert.ok(progress.doneBytes <= progress.totalBytes);
  assert.equal(progress.doneBytes, progress.totalBytes);
  assert.ok(progress.totalBytes > 0);
  loading.cancel();
  const loaded = await loading.take();
  clearInterval(clock);
  assert.ok(ticks > 0);
  const other = loaded.engine({ contextTokens: 64, prewarmLater: true });
  loaded.close();
  while (!(await other.prewarm(1000)));
  assert.equal((await other.generate(PROMPT, { maxTokens: 24 }).wait()).text, text);
  await other.close();
  await assert.rejects(loading.take(), { status: "not_found" });
  const waiting = device.beginLoad(MODEL);
  const waited = waiting.wait();
  await waiting.close();
  await waiting.close();
  assert.equal((await waited).ended, true);
  await assert.rejects(waiting.take(), /the loading is closed/);
  await assert.rejects(device.beginLoad("/nowhere/ä.gguf").take(), { status: "bad_file" });
});

test("adapters are named and scaled", async () => {
  const adapters = { whole: ADAPTER, again: { memory: readFileSync(ADAPTER), scale: 1 }, faint: { path: ADAPTER, scale: 1e-9 } };
  const adapted = device.load(MODEL, { adapters });
  const other = adapted.engine({ contextTokens: 64, nSequences: 4 });
  const say = (adapter) => other.generate(PROMPT, { maxTokens: 24, adapter, priority: 1, serviceClass: "batch" }).wait();
  const [none, whole, again, faint] = await Promise.all([undefined, "whole", "again", "faint"].map(say));
  assert.deepEqual([none.text, faint.text], [text, text]);
  assert.notEqual(whole.text, text);
  assert.equal(again.text, whole.text);
  const session = other.session({ adapter: "whole" });
  assert.equal((await session.goOn(PROMPT, { maxTokens: 24 }).wait()).text, whole.text);
  assert.throws(() => session.goOn(undefined, { adapter: "faint" }), /alone is of a request without a session/);
  await other.close();
  adapted.close();
  assert.throws(() => device.load(MODEL, { adapters: { none: { path: ADAPTER, scale: 0 } } }), RangeError);
  assert.throws(() => device.load(MODEL, { adapter: {} }), /unknown option: adapter/);
});

test("answers in parts", async () => {
  const chatTemplate = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role }}: " +
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n" +
    "{% endfor %}{% if enable_thinking %}<think>\n{% endif %}";
  const tools = [{ type: "function", function: { name: "look", parameters: { type: "object",
    properties: { n: { enum: [1, 2] } }, required: ["n"], additionalProperties: false } } }];
  const chat = device.load(MODEL, { chatTemplate });
  const other = chat.engine({ contextTokens: 512 });
  const session = other.session({ system: "Be kind." });
  const called = await session.ask([{ role: "user", content: "Hi" }], { tools, toolChoice: "look", maxTokens: 100 }).wait();
  assert.equal(called.calls.length, 1);
  const [call] = called.calls;
  assert.deepEqual([call.name, call.complete, called.content], ["look", true, ""]);
  assert.ok([1, 2].includes(JSON.parse(call.arguments).n));
  const result = { role: "tool", tool_call_id: call.id, content: "A cat" };
  const told = await session.ask([result], { tools, maxTokens: 8 }).wait();
  assert.equal(told.content.trim(), told.text.trim());
  assert.match(chat.detokenize(session.tokens), /system: Be kind.\s*user: Hi/);
  const thought = await other.ask([{ role: "user", content: "upon" }],
    { templateVariables: { enable_thinking: true }, maxTokens: 8 }).wait();
  assert.deepEqual([thought.reasoning.trim(), thought.content], [thought.text.trim(), ""]);
  assert.throws(() => other.generate("Hi", { tools }), { status: "invalid_argument" });
  await other.close();
  chat.close();
});

test("choices and scores of a prompt", async () => {
  const choice = (seed, options) => engine.generate(PROMPT, { maxTokens: 24, temperature: 0.9, seed, ...options });
  const first = choice(1);
  const second = choice(2, { sharesPromptWith: first });
  assert.notEqual((await first.wait()).text, (await second.wait()).text);
  assert.equal(second.usage.cachedTokens, second.usage.promptTokens);
  assert.equal((await choice(2).wait()).text, second.text);
  const tokens = Array.from(model.tokenize(PROMPT));
  const scored = await engine.generate(PROMPT, { maxTokens: 24, scores: true, logProbs: 0 }).wait();
  assert.equal(scored.text, text);
  assert.deepEqual(scored.scores.map(({ token }) => token), tokens.slice(1));
  assert.ok(scored.scores.every(({ logProb }) => logProb <= 0));
  assert.deepEqual([scored.tokens.length, scored.logProbs.length, scored.logProbs[0].top], [24, 24, []]);
  assert.ok(scored.computedTokens >= tokens.length + 23);
});

test("guesses and latencies", async () => {
  const other = model.engine({ draftModel: MODEL });
  const { text: said, usage } = await other.generate(PROMPT, { maxTokens: 24, speculation: "draft", maxDraftTokens: 1 }).wait();
  assert.equal(said, text);
  assert.ok(usage.acceptedTokens > 0 && usage.draftedTokens >= usage.acceptedTokens && usage.draftedTokens <= 12);
  const [first, total] = [other.latency("first_token"), other.latency("total")];
  assert.equal(first.count, 1);
  assert.ok(total.maxUs > first.maxUs);
  assert.throws(() => other.latency("never"), TypeError);
  await other.close();
});

test("vectors of texts", async () => {
  const embedding = device.load(MODEL, { embeds: true, pooling: "mean" });
  const embedder = embedding.embedder({ textTokens: 64 });
  embedding.close();
  const vectors = await embedder.embed(["The dog ran home.", "A cat slept.", "The dog ran home."]);
  assert.deepEqual(vectors.map((one) => one.length), Array(3).fill(embedder.width));
  const cosine = (other) => vectors[0].reduce((sum, one, i) => sum + one * vectors[other][i], 0);
  assert.ok(Math.abs(cosine(2) - 1) < 1e-4 && cosine(1) < 0.999);
  assert.deepEqual(await embedder.embed([]), []);
  await assert.rejects(embedder.embed(["dog ".repeat(100)]), (error) =>
    error.status === "does_not_fit" && /text 1 has/.test(error.message));
  const last = embedder.embed(["A cat slept."]);
  await embedder.close();
  assert.equal((await last)[0].length, vectors[0].length);
  await embedder.close();
  await assert.rejects(embedder.embed(["A cat slept."]), /the embedder is closed/);
});

test("estimates and the self-test", () => {
  const [small, large] = [1, 4].map((nSequences) => device.estimate(MODEL, { engine: { contextTokens: 256, nSequences } }));
  assert.equal(small.fits, true);
  assert.deepEqual([small.contextTokens, large.kvBytes], [256, 4 * small.kvBytes]);
  const result = device.selfTest(["rms_norm"], { timeout: 300 });
  assert.ok(result.nPassed > 0);
  assert.deepEqual([result.nFailed, result.nErrors], [0, 0]);
  assert.throws(() => device.selfTest(["no such operation"]), { status: "invalid_argument" });
});

test("cancelling, stops and biases", async () => {
  const answer = engine.generate(PROMPT, { maxTokens: 300 });
  await answer.next();
  answer.cancel();
  assert.equal((await answer.wait()).endReason, "cancelled");
  answer.cancel();
  const word = text.split(" ")[2];
  const stopped = await engine.generate(PROMPT, { maxTokens: 24, stop: ["§", word] }).wait();
  assert.deepEqual([stopped.text, stopped.endReason], [text.slice(0, text.indexOf(word)), "stop_text"]);
  const [likeliest] = (await engine.generate(PROMPT, { maxTokens: 1 }).wait()).tokens;
  const banned = await engine.generate(PROMPT, { maxTokens: 1, logitBias: { [likeliest]: -Infinity } }).wait();
  assert.notEqual(banned.tokens[0], likeliest);
});

test("frames", async () => {
  const answer = engine.generate(PROMPT, { maxTokens: 24 });
  let read = "";
  while (!answer.finished) {
    await engine.poll(1000);
    read += answer.take();
  }
  assert.equal(read + answer.take(), text);
});

test("closed handles are errors, also while an answer is waited for", async () => {
  const closed = model.engine({ contextTokens: 64 });
  const answer = closed.generate(PROMPT, { maxTokens: 40 });
  const waiting = answer.wait();
  const rejected = assert.rejects(waiting, /the engine is closed/);
  await answer.next();
  await closed.close();
  await closed.close();
  await rejected;
  assert.throws(() => closed.generate(PROMPT), /the engine is closed/);
});
