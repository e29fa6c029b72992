// Language models on any GPU, by Vulkan. README.md has an example.
import { PUMICE_NO_LIMIT } from "./abi.mjs";
import { Turns, blank, call, callAside, close, counted, filled, made, microseconds, named, nameOf, string, struct,
  textOf } from "./library.mjs";
import { Engine } from "./engine.mjs";

export { Engine };
export { Answer, Session } from "./engine.mjs";
export { PumiceError, version } from "./library.mjs";

const left = new FinalizationRegistry(({ kind, pointer }) => close(kind, pointer));

class Handle {
  #kind;
  #pointer;

  // `memory`: what the library reads as long as the handle is open.
  constructor(kind, pointer, memory) {
    this.#kind = kind;
    this.#pointer = pointer;
    left.register(this, { kind, pointer, memory }, this);
  }

  get pointer() {
    if (this.#pointer === null) throw new Error(`the ${this.#kind} is closed`);
    return this.#pointer;
  }

  get isClosed() {
    return this.#pointer === null;
  }

  // What was made of it goes on. Closed handles may be closed again.
  close() {
    if (this.#pointer === null) return;
    left.unregister(this);
    close(this.#kind, this.#pointer);
    this.#pointer = null;
  }
}

// The devices of this machine.
export function devices() {
  const make = (n) => Array.from({ length: n }, () => blank("pumice_device_info"));
  return counted((values, capacity, count) => call("device_list", values, capacity, count), make).map(infoOf);
}

function infoOf({ name, driver, uuid, memory_bytes: memoryBytes, is_cpu: isCpu }) {
  return { name, driver, uuid, memoryBytes, isCpu: isCpu === 1 };
}

// Options: selector (an index, a UUID or a part of a name), cacheDirectory, memoryBytes, validation, debugLog, lowPriority.
export class Device extends Handle {
  constructor(options = {}) {
    super("device", made("device_open", struct("pumice_device_options", options)));
  }

  get info() {
    const info = blank("pumice_device_info");
    call("device_get_info", this.pointer, info);
    return infoOf(info);
  }

  // What the device, its models and engines had to say since.
  log() {
    const lines = [];
    while (true) {
      const log = blank("pumice_log");
      call("next_log", this.pointer, log);
      if (log.level === 0) return lines;
      lines.push({ level: nameOf("pumice_log_level", log.level), text: textOf(log.line) });
    }
  }

  // What a GGUF file and an engine with the option `engine` of load would take of the device, before anything is loaded:
  // fits, totalBytes, mostContextTokens and all others of pumice_memory_estimate.
  estimate(path, options = {}) {
    const { fits, ...bytes } = filled("pumice_memory_estimate", "model_estimate", this.pointer, modelOptions(path, options));
    return { fits: fits === 1, ...bytes };
  }

  // Whether the device computes right: runs the kernels of these operations, or of all, in which time nothing else of the
  // program runs. `timeout`: seconds. How many nPassed, nFailed, nNotSupported and nNotRun. Throws self_test_failed where an
  // operation is left without a kernel that is right, and cancelled when the time was up. The verdict is kept in the
  // cacheDirectory, and holds for engines made from then on.
  selfTest(operations = [], { timeout } = {}) {
    const options = struct("pumice_self_test_options", { operations: operations.join(), timeoutUs: microseconds(timeout) });
    return filled("pumice_self_test_result", "self_test", this.pointer, options);
  }

  // A model of a GGUF file. Seconds for a large one, in which nothing else of the program runs. Options: engine (options of
  // the engine that will be made, for which room is left), memory (a Buffer with the file's bytes, instead of a file),
  // chatTemplate (Jinja, instead of the file's own), answerFormat (how it writes reasoning and calls, by the name of a family,
  // instead of what its template shows), embeds (for Model.embedder instead of engines), pooling ("mean", "cls" or "last",
  // instead of what the file says), adapters: LoRA adapters for sessions and answers, {name: GGUF file}, or
  // {name: {path or memory, scale}}.
  load(path, options = {}) {
    return new Model(made("model_load", this.pointer, modelOptions(path, options)), memoryOf(options));
  }

  // A Loading: what load does, while the program goes on.
  beginLoad(path, options = {}) {
    return new Loading(made("model_load_begin", this.pointer, modelOptions(path, options)), memoryOf(options));
  }
}

function modelOptions(path, { adapters = {}, engine, memory, ...options }) {
  const given = Object.entries(adapters).map(([name, one]) => adapterOf(name, typeof one === "string" ? { path: one } : one));
  return struct("pumice_model_options", { path, ...options, memory, memoryBytes: memory?.byteLength,
    engine: engine && struct("pumice_engine_options", engine), adapters: given.length ? given : null, nAdapters: given.length });
}

function adapterOf(name, { path, memory, scale }) {
  if (scale === 0) throw new RangeError(`adapter ${name}: with a scale of 0 it adds nothing`);
  return struct("pumice_adapter", { name, path, memory, memoryBytes: memory?.byteLength, scale });
}

const memoryOf = ({ memory, adapters = {} }) => [memory, ...Object.values(adapters).map((one) => one.memory)];

// A model that is being loaded. Made by Device.beginLoad.
export class Loading extends Handle {
  #memory;
  #turns = new Turns(); // of waits, which are other threads'

  constructor(pointer, memory) {
    super("loading", pointer, memory);
    this.#memory = memory;
  }

  // How far it is, {ended, doneBytes, totalBytes} of the file's weights (a total of 0 is not known yet), once it has ended or
  // after that many seconds.
  wait(seconds) {
    return this.#turns.take(async () => {
      const progress = blank("pumice_load_progress");
      const limit = seconds === undefined ? PUMICE_NO_LIMIT : Math.round(seconds * 1e6);
      await callAside("loading_wait", this.pointer, limit, progress);
      const { phase, doneBytes, totalBytes } = named(progress);
      return { ended: nameOf("pumice_load_phase", phase) === "ended", doneBytes, totalBytes };
    });
  }

  // It ends soon; nothing happens to one that has ended.
  cancel() {
    try {
      call("loading_cancel", this.pointer);
    } catch (error) {
      if (error.status !== "not_found") throw error;
    }
  }

  // The Model, once, waiting for it. Throws what Device.load does, and cancelled.
  async take() {
    await this.wait();
    return new Model(made("loading_take", this.pointer), this.#memory);
  }

  // Cancels what has not ended.
  async close() {
    if (this.isClosed) return;
    this.cancel();
    await this.#turns.take(() => super.close()); // no thread is in a call with it then
  }
}

export class Model extends Handle {
  #memory;

  constructor(pointer, memory) {
    super("model", pointer, memory);
    this.#memory = memory;
  }

  // What engines and embedders, which go on after close(), read too.
  get memory() {
    return this.#memory;
  }

  get info() {
    return filled("pumice_model_info", "model_get_info", this.pointer);
  }

  // `special`: as a prompt's start, and texts such as "</s>" are the tokens of that name.
  tokenize(text, { special = true } = {}) {
    const given = struct("pumice_constraint_options", { text }).text;
    return counted((values, capacity, count) => call("tokenize", this.pointer, given, Number(special), values, capacity, count),
      (n) => new Uint32Array(n));
  }

  detokenize(tokens) {
    const given = Uint32Array.from(tokens);
    return counted((values, capacity, count) => call("detokenize", this.pointer, given, given.length, values, capacity, count),
      (n) => Buffer.alloc(n)).toString();
  }

  // One of {schema} (a JSON Schema, as an object or text), {grammar} (GBNF) and {regex}, compiled once for as many answers
  // as like.
  constraint(options) {
    const kinds = Object.keys(options);
    if (kinds.length !== 1 || !["schema", "grammar", "regex"].includes(kinds[0])) {
      throw new TypeError("a constraint must have one of schema, grammar and regex");
    }
    const { [kinds[0]]: said } = options;
    const kind = kinds[0] === "schema" ? "json_schema" : kinds[0];
    const text = typeof said === "string" ? said : JSON.stringify(said);
    return new Constraint(made("constraint_compile", this.pointer, struct("pumice_constraint_options", { kind, text })));
  }

  // Options: contextTokens, nSequences, kvTokens, kvType, overflow and all others of pumice_engine_options.
  engine(options = {}) {
    return new Engine(this, made("engine_create", this.pointer, struct("pumice_engine_options", options)));
  }

  // An Embedder, of a model that was loaded with `embeds`. Options: textTokens (of the longest text) and all others of
  // pumice_embedder_options.
  embedder(options = {}) {
    return new Embedder(this, made("embedder_create", this.pointer, struct("pumice_embedder_options", options)));
  }
}

export class Constraint extends Handle {
  constructor(pointer) {
    super("constraint", pointer);
  }
}

// Makes vectors of texts. Made by Model.embedder.
export class Embedder extends Handle {
  #turns = new Turns(); // of one thread at a time

  constructor(model, pointer) {
    super("embedder", pointer, model.memory);
    ({ width: this.width, textTokens: this.textTokens } = filled("pumice_embedder_info", "embedder_get_info", pointer));
  }

  // A Float32Array of `width` numbers for each text.
  embed(texts) {
    return this.#turns.take(async () => {
      const strings = texts.map(string);
      const all = new Float32Array(strings.length * this.width);
      const given = [strings, strings.length, all, all.length, [0]];
      // The message of an error is in the other thread, so it is asked for again in this one.
      if (await callAside("embed", this.pointer, ...given)) call("embed", this.pointer, ...given);
      return texts.map((_, i) => all.subarray(i * this.width, (i + 1) * this.width));
    });
  }

  close() {
    return this.#turns.take(() => super.close()); // no thread is in a call with it then
  }
}
