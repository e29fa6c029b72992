// Finds libpumice, declares its functions, and turns statuses into errors.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import koffi from "koffi";
import { ENUMS, FUNCTIONS, STRUCTS } from "./abi.mjs";

// What a call failed with. `status` is its name ("does_not_fit"), the message says what was wrong.
export class PumiceError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "PumiceError";
    this.code = code;
    this.status = nameOf("pumice_status", code);
  }
}

export function nameOf(type, value) {
  return Object.keys(ENUMS[type]).find((name) => ENUMS[type][name] === value);
}

export function valueOf(type, name) {
  if (!Object.hasOwn(ENUMS[type], name)) {
    throw new TypeError(`'${name}' must be one of ${Object.keys(ENUMS[type]).join(", ")}`);
  }
  return ENUMS[type][name];
}

function open() {
  const name = process.platform === "win32" ? "pumice.dll" : "libpumice.so.0.1";
  const beside = fileURLToPath(new URL(name, import.meta.url));
  const file = process.env.PUMICE_LIBRARY ?? (existsSync(beside) ? beside : name);
  try {
    const library = koffi.load(file);
    return Object.fromEntries(FUNCTIONS.map((one) => [one.match(/(\w+)\(/)[1], library.func(one)]));
  } catch (error) {
    throw new Error(`${file} can't be used: ${error.message}; PUMICE_LIBRARY may name another`, { cause: error });
  }
}

const functions = open();

// Calls pumice_NAME.
export function call(name, ...given) {
  const status = functions[`pumice_${name}`](...given);
  if (status) throw new PumiceError(status, functions.pumice_last_error());
}

// Calls pumice_NAME in another thread: its status. The message of an error stays in that thread.
export function callAside(name, ...given) {
  return promisify(functions[`pumice_${name}`].async)(...given);
}

export const version = () => functions.pumice_version();
export const close = (name, pointer) => functions[`pumice_${name}_close`](pointer);

export function string(text) {
  const data = Buffer.from(text);
  return { data: data.length ? data : null, length: data.length };
}

export const bytesOf = (data, length) => (length ? Buffer.from(new Uint8Array(koffi.view(data, length))) : Buffer.alloc(0));
export const textOf = (value) => bytesOf(value.data, value.length).toString();
export const arrayOf = (data, type, length) => (length ? koffi.decode(data, type, length) : []);

// The pointer that pumice_NAME writes behind what is given.
export function made(name, ...given) {
  const pointer = [null];
  call(name, ...given, pointer);
  return pointer[0];
}

// Of seconds: at least one, or null, which leaves a default.
export const microseconds = (seconds) => (seconds === undefined ? null : Math.max(1, Math.round(seconds * 1e6)));

// Tasks of which one is done at a time.
export class Turns {
  #last = Promise.resolve();

  // `task` when those before are done: what it returns.
  take(task) {
    const done = this.#last.then(task);
    this.#last = done.then(() => {}, () => {});
    return done;
  }
}

// A struct with its size set, of options named as in C but in camel case; undefined and null leave a default.
export function struct(type, options = {}) {
  const value = blank(type);
  for (const [key, given] of Object.entries(options)) {
    const name = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    const kind = STRUCTS[type][name];
    if (kind === undefined || name === "struct_size") throw new TypeError(`unknown option: ${key}`);
    if (given === undefined || given === null) continue;
    if (kind in ENUMS) {
      value[name] = valueOf(kind, given);
    } else {
      value[name] = kind === "pumice_string" ? string(given) : typeof given === "boolean" ? Number(given) : given;
    }
  }
  return value;
}

function blank(type) {
  const value = {};
  for (const [name, kind] of Object.entries(STRUCTS[type])) {
    if (kind === "pumice_string") value[name] = { data: null, length: 0 };
    else if (typeof kind !== "string") value[name] = "";
    else value[name] = kind.endsWith("*") ? null : 0;
  }
  if ("struct_size" in value) value.struct_size = koffi.sizeof(type);
  return value;
}

// What pumice_NAME writes into a struct behind what is given, as an object with names in camel case.
export function filled(type, name, ...given) {
  const value = blank(type);
  call(name, ...given, value);
  return named(value);
}

export function named(value) {
  const members = Object.entries(value).filter(([name]) => name !== "struct_size");
  return Object.fromEntries(members.map(([name, one]) => [name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), one]));
}

// What `ask(array, capacity, [count])` gives, asked for its size first.
export function counted(ask, make) {
  let values = null;
  while (true) {
    const count = [0];
    const capacity = values ? values.length : 0;
    try {
      ask(values, capacity, count);
    } catch (error) {
      if (error.status !== "too_small") throw error;
    }
    if (count[0] <= capacity) return values ? values.slice(0, count[0]) : make(0);
    values = make(count[0]);
  }
}

export { blank };
