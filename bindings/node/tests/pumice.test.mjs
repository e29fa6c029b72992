// The package on the built library (PUMICE_LIBRARY), with the bundled model (PUMICE_MODEL).
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import * as pumice from "pumice";

const PROMPT = "Once upon a time";
let device, model, engine, text;

before(async () => {
  device = new pumice.Device();
  model = device.load(process.env.PUMICE_MODEL);
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
  assert.throws(() => device.load(process.env.PUMICE_MODEL, { adapters: { fox: process.env.PUMICE_MODEL } }),
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
