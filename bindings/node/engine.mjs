// Engines, sessions and answers.
import { PUMICE_NO_LIMIT } from "./abi.mjs";
import { PumiceError, Turns, arrayOf, blank, bytesOf, call, callAside, close, counted, filled, microseconds, nameOf, string,
  struct, textOf, valueOf } from "./library.mjs";

const WAIT_US = 50_000; // then a loop that waits looks whether its answer came

function sampling({ logitBias, ...options }) {
  if (logitBias === undefined && Object.values(options).every((one) => one === undefined)) return null;
  const biases = Object.entries(logitBias ?? {}).map(([token, bias]) => ({ token: Number(token), bias }));
  return struct("pumice_sampling", { ...options, logitBiases: biases.length ? biases : null, nLogitBiases: biases.length });
}

// Made by Model.engine.
export class Engine {
  #pointer;
  #model;
  #answers = new Map(); // by request
  #turns = new Turns(); // of the library's polling thread

  constructor(model, pointer) {
    this.#model = model;
    this.#pointer = pointer;
  }

  get pointer() {
    if (this.#pointer === null) throw new Error("the engine is closed");
    return this.#pointer;
  }

  // An Answer that continues a text, or token ids. Options: maxTokens, stop, timeout (seconds), ignoreEnd, special,
  // constraint or one of schema, grammar and regex, logProbs (so many of the likeliest for each token), scores (of the
  // prompt's tokens: Answer.scores), speculation ("off", "lookup", "auto", "draft", "mtp") with maxDraftTokens of a guess,
  // sharesPromptWith (another answer to the same prompt, of which this one is another choice); temperature, topK, topP, minP,
  // repeatPenalty, frequencyPenalty, presencePenalty, seed, logitBias ({token: bias}); and of an answer without a session
  // serviceClass, priority, salt, maxTokensPerSecond and adapter.
  generate(prompt, options = {}) {
    return this.submit(0, promptOf(prompt), options);
  }

  // An Answer to messages [{role, content}], by the model's chat template.
  chat(messages, options = {}) {
    return this.submit(0, messagesOf(messages), options);
  }

  // An Answer in parts to messages as OpenAI has them, of any role: `reasoning`, `content`, `calls`. Options: those of
  // generate, tools (OpenAI's functions), toolChoice ("auto", "none", "required", or a tool's name) and templateVariables,
  // such as {enable_thinking: false}. The model needs a chat template.
  ask(messages, options = {}) {
    return this.submit(0, askedOf(messages), options);
  }

  // A Session: a conversation, or a character. Options: system, serviceClass, priority, salt, maxTokensPerSecond,
  // sentences, adapter (one of the model's, by its name), and those of sampling.
  session({ system, serviceClass, priority, salt, maxTokensPerSecond, sentences, adapter, ...sampled } = {}) {
    const number = [0];
    call("session_open", this.pointer, struct("pumice_session_options", {
      sampling: sampling(sampled), serviceClass, priority, salt, maxTokensPerSecond, sentences, adapter }), number);
    return new Session(this, number[0], system);
  }

  // The Session that Session.save gave, of sources that you trust.
  restore(saved, { tokensOnly = false } = {}) {
    return this.exclusive(() => {
      const number = [0];
      call("session_restore", this.pointer, saved, saved.length, struct("pumice_restore_options", { tokensOnly }), number);
      return new Session(this, number[0]);
    });
  }

  // "fast", "graphics" or "background": how the engine shares its device with others.
  setMode(mode) {
    call("set_mode", this.pointer, valueOf("pumice_mode", mode));
  }

  // Of all engines on the device; null: no budget.
  setMemoryBudget(bytes) {
    return this.exclusive(() => call("set_memory_budget", this.pointer, bytes ?? PUMICE_NO_LIMIT));
  }

  get stats() {
    return filled("pumice_stats", "get_stats", this.pointer);
  }

  // How long it took in all requests so far: of "queue", "first_token", "token_interval" or "total".
  latency(kind) {
    return filled("pumice_latency", "get_latency", this.pointer, valueOf("pumice_latency_kind", kind));
  }

  // Compiles kernels for about that long, one at least; whether all are there. For engines with prewarmLater.
  prewarm(time = 0) {
    return this.exclusive(() => {
      const [done, total] = [[0], [0]];
      call("prewarm", this.pointer, time, done, total);
      return done[0] === total[0];
    });
  }

  // One step of work, for programs that draw frames: as much as keeps the device busy for that long. Answers then have
  // what came (Answer.take).
  poll(time = 0) {
    return this.exclusive(() => this.#step(time));
  }

  // Answers under way can't be read to their end afterwards.
  close() {
    const pointer = this.#pointer;
    this.#pointer = null;
    return this.#turns.take(() => { // no thread is in a call with it then
      if (pointer !== null) close("engine", pointer);
    });
  }

  // Of sessions and answers alone.
  submit(session, prompt, { maxTokens, stop = [], timeout, ignoreEnd, special, constraint, schema, grammar, regex, logProbs,
    scores, speculation, maxDraftTokens, sharesPromptWith, tools, toolChoice, templateVariables, serviceClass, priority, salt,
    maxTokensPerSecond, adapter, ...sampled }) {
    const texts = Object.entries({ schema, grammar, regex }).filter(([, text]) => text !== undefined);
    const held = texts.length ? this.#model.constraint(Object.fromEntries(texts)) : constraint;
    const stops = [stop].flat().map(string);
    const alone = { serviceClass, priority, salt, maxTokensPerSecond, adapter };
    const isSaid = Object.values(alone).some((one) => one !== undefined);
    const number = [0];
    try {
      call("submit", this.pointer, session, struct("pumice_request_options", {
        ...prompt, maxNewTokens: maxTokens, ignoreEnd, special, speculation, sampling: sampling(sampled),
        stops: stops.length ? stops : null, nStops: stops.length,
        timeoutUs: microseconds(timeout), constraint: held?.pointer, logProbs: logProbs !== undefined, nTopLogProbs: logProbs,
        scores, maxDraftTokens, sharesPromptWith: sharesPromptWith?.request, toolChoice,
        toolsJson: tools && JSON.stringify(tools), templateVariablesJson: templateVariables && JSON.stringify(templateVariables),
        alone: isSaid ? struct("pumice_session_options", alone) : null }), number);
    } finally {
      if (texts.length) held.close();
    }
    const answer = new Answer(this, number[0], logProbs !== undefined);
    this.#answers.set(number[0], answer);
    return answer;
  }

  // `task` when nothing else needs the library's polling thread.
  exclusive(task) {
    return this.#turns.take(task);
  }

  // Until that answer has something new.
  async work(answer) {
    while (!answer.hasNews) {
      await this.exclusive(async () => {
        if (answer.hasNews) return;
        this.#step(PUMICE_NO_LIMIT);
        // The message of an error is in the thread that waited, so it is asked for again in this one.
        if (!answer.hasNews && (await callAside("wait", this.pointer, WAIT_US))) call("wait", this.pointer, 0);
      });
    }
  }

  #step(time) {
    call("poll", this.pointer, time);
    while (true) {
      const event = blank("pumice_event");
      call("next_event", this.pointer, event);
      const kind = nameOf("pumice_event_kind", event.kind);
      if (kind === "none") return;
      this.#answers.get(event.request)?.add(event, kind);
      if (kind === "finished") this.#answers.delete(event.request);
    }
  }
}

const promptOf = (prompt) => (prompt === undefined || typeof prompt === "string" ? { text: prompt }
  : { tokens: Uint32Array.from(prompt), nTokens: prompt.length });
const messagesOf = (messages) => ({ nMessages: messages.length,
  messages: messages.map(({ role, content }) => ({ role: string(role), content: string(content) })) });

const askedOf = (messages) => ({ parts: true, messagesJson: JSON.stringify(messages) });

// What a request says: pieces of text as they come, by `for await`, each once.
//
// Of all that was taken so far: `text`, `tokens`, `logProbs`; `scores` of its prompt, [{token, logProb}], each behind those
// before it; `computedTokens` of prompt and answer. Of one that was asked for in parts (`ask`): `reasoning`, `content` and
// `calls` [{id, name, arguments (JSON), complete}], as far as they came.
//
// Once it has ended: `endReason` ("stop", "length", "stop_text", "window", "cancelled", "timeout", "error"), `usage`.
export class Answer {
  #engine;
  #hasLogProbs;
  #fresh = "";
  #error = null;
  finished = false;
  text = "";
  tokens = [];
  logProbs = [];
  scores = [];
  computedTokens = 0;
  reasoning = "";
  content = "";
  calls = [];
  endReason = null;
  usage = null;

  constructor(engine, request, hasLogProbs) {
    this.#engine = engine;
    this.request = request;
    this.#hasLogProbs = hasLogProbs;
  }

  get hasNews() {
    return this.#fresh !== "" || this.finished;
  }

  // The text that came since, without waiting: for programs that call Engine.poll.
  take() {
    const taken = this.#fresh;
    this.#fresh = "";
    this.text += taken;
    return taken;
  }

  // What came stays; nothing happens to one that has ended.
  cancel() {
    if (!this.finished) call("cancel", this.#engine.pointer, this.request);
  }

  // To its end: itself.
  async wait() {
    while (!(await this.next()).done);
    return this;
  }

  // The whole text, to its end, as a value: of an answer with a schema.
  async json() {
    return JSON.parse((await this.wait()).text);
  }

  async next() {
    await this.#engine.work(this);
    const value = this.take();
    if (value !== "") return { value, done: false };
    if (this.#error) throw this.#error;
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  // An event of the library's; of Engine alone.
  add(event, kind) {
    this.computedTokens = event.computed_tokens;
    if (kind === "score") {
      this.scores.push({ token: event.token, logProb: event.log_prob });
    } else if (event.has_token) {
      this.tokens.push(event.token);
      if (this.#hasLogProbs) {
        const top = arrayOf(event.top_log_probs, "pumice_token_log_prob", event.n_top_log_probs);
        this.logProbs.push({ logProb: event.log_prob,
          top: top.map(({ token, log_prob: logProb }) => ({ token, logProb })) });
      }
    }
    for (const part of arrayOf(event.parts, "pumice_answer_part", event.n_parts)) this.#addPart(part);
    this.#fresh += textOf(event.text);
    if (kind !== "finished") return;
    this.finished = true;
    this.endReason = nameOf("pumice_end_reason", event.end_reason);
    this.usage = { promptTokens: event.prompt_tokens, cachedTokens: event.cached_tokens,
      generatedTokens: event.generated_tokens, firstTokenS: event.first_token_us / 1e6, totalS: event.total_us / 1e6,
      draftedTokens: event.drafted_tokens, acceptedTokens: event.accepted_tokens,
      forgottenQuestions: event.forgotten_questions };
    if (event.status) this.#error = new PumiceError(event.status, textOf(event.message));
  }

  #addPart(part) {
    const text = textOf(part.text);
    const kind = nameOf("pumice_part_kind", part.kind);
    if (kind === "reasoning") this.reasoning += text;
    else if (kind === "text") this.content += text;
    else if (kind === "call_begun") this.calls.push({ id: textOf(part.id), name: text, arguments: "", complete: false });
    else if (kind === "arguments") this.calls[part.call].arguments += text;
    else if (kind === "call_ended") this.calls[part.call].complete = part.complete === 1;
  }
}

// A conversation. Made by Engine.session; it remembers what was said.
export class Session {
  #engine;
  #number;
  #system;

  constructor(engine, number, system) {
    this.#engine = engine;
    this.#number = number;
    this.#system = system;
  }

  // An Answer to what is said. Options: those of Engine.generate; sampling of this answer alone.
  say(text, options = {}) {
    const messages = [{ role: "user", content: text }];
    if (this.#system !== undefined) messages.unshift({ role: "system", content: this.#system });
    const answer = this.#engine.submit(this.#number, messagesOf(messages), options);
    this.#system = undefined;
    return answer;
  }

  // An Answer in parts: see Engine.ask. Messages are what was said since, a tool's results alone, say.
  ask(messages, options = {}) {
    const all = this.#system === undefined ? messages : [{ role: "system", content: this.#system }, ...messages];
    const answer = this.#engine.submit(this.#number, askedOf(all), options);
    this.#system = undefined;
    return answer;
  }

  // An Answer that continues the last one or, of sessions without messages, a text.
  goOn(text, options = {}) {
    return this.#engine.submit(this.#number, promptOf(text), options);
  }

  // What it holds, as ids.
  get tokens() {
    return counted((values, capacity, count) =>
      call("session_tokens", this.#engine.pointer, this.#number, values, capacity, count), (n) => new Uint32Array(n));
  }

  // How many questions were asked, answered or not; of sessions without messages, requests with a prompt.
  get turns() {
    const turns = [0];
    call("session_turns", this.#engine.pointer, this.#number, turns);
    return turns[0];
  }

  // To the end of that many turns. keepQuestion: to before the next one's reply, which goOn gives anew.
  rollBack(turns, { keepQuestion = false } = {}) {
    call("session_rollback", this.#engine.pointer, this.#number, turns, Number(keepQuestion));
  }

  // Bytes for Engine.restore, with its keys and values.
  save() {
    return this.#engine.exclusive(() => {
      const [data, size] = [[null], [0]];
      call("session_save", this.#engine.pointer, this.#number, data, size);
      return bytesOf(data[0], size[0]);
    });
  }

  // Cancels its answer, if one is under way.
  close() {
    call("session_close", this.#engine.pointer, this.#number);
  }
}
