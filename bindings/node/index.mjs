// Language models on any GPU, by Vulkan. README.md has an example.
import { blank, call, close, counted, filled, nameOf, struct, textOf } from "./library.mjs";
import { Engine } from "./engine.mjs";

export { Engine };
export { Answer, Session } from "./engine.mjs";
export { PumiceError, version } from "./library.mjs";

const left = new FinalizationRegistry(({ kind, pointer }) => close(kind, pointer));

class Handle {
  #kind;
  #pointer;

  constructor(kind, pointer) {
    this.#kind = kind;
    this.#pointer = pointer;
    left.register(this, { kind, pointer }, this);
  }

  get pointer() {
    if (this.#pointer === null) throw new Error(`the ${this.#kind} is closed`);
    return this.#pointer;
  }

  // What was made of it goes on. Closed handles may be closed again.
  close() {
    if (this.#pointer === null) return;
    left.unregister(this);
    close(this.#kind, this.#pointer);
    this.#pointer = null;
  }
}

function made(name, ...given) {
  const pointer = [null];
  call(name, ...given, pointer);
  return pointer[0];
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

  // A model of a GGUF file. Seconds for a large one, in which nothing else of the program runs. `adapters`: LoRA adapters
  // for sessions, {name: GGUF file}.
  load(path, { adapters = {} } = {}) {
    const given = Object.entries(adapters).map(([name, file]) => struct("pumice_adapter", { name, path: file }));
    return new Model(made("model_load", this.pointer, struct("pumice_model_options", {
      path, adapters: given.length ? given : null, nAdapters: given.length })));
  }
}

export class Model extends Handle {
  constructor(pointer) {
    super("model", pointer);
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
}

export class Constraint extends Handle {
  constructor(pointer) {
    super("constraint", pointer);
  }
}
