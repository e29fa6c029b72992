"""Engines, sessions and answers."""

import asyncio
import collections
import ctypes
import json
import threading
import weakref

from . import _abi
from ._handles import Constraint, Handle
from ._library import Error, array, call, counted, microseconds, new, string, text_of

_END_REASONS = {_abi.PUMICE_END_LENGTH: "length", _abi.PUMICE_END_STOP: "stop", _abi.PUMICE_END_STOP_TEXT: "stop_string",
                _abi.PUMICE_END_WINDOW: "window", _abi.PUMICE_END_CANCELLED: "cancelled", _abi.PUMICE_END_TIMEOUT: "timeout",
                _abi.PUMICE_END_ERROR: "error"}
_OVERFLOWS = {"stop": _abi.PUMICE_OVERFLOW_STOP, "shift": _abi.PUMICE_OVERFLOW_SHIFT,
              "truncate": _abi.PUMICE_OVERFLOW_TRUNCATE}
_CLASSES = {"normal": _abi.PUMICE_SERVICE_NORMAL, "interactive": _abi.PUMICE_SERVICE_INTERACTIVE,
            "batch": _abi.PUMICE_SERVICE_BATCH}
_MODES = {"fast": _abi.PUMICE_MODE_FAST, "graphics": _abi.PUMICE_MODE_GRAPHICS, "background": _abi.PUMICE_MODE_BACKGROUND}
_SPECULATIONS = {"off": _abi.PUMICE_SPECULATION_OFF, "lookup": _abi.PUMICE_SPECULATION_LOOKUP,
                 "auto": _abi.PUMICE_SPECULATION_AUTO, "draft": _abi.PUMICE_SPECULATION_DRAFT,
                 "mtp": _abi.PUMICE_SPECULATION_MTP}
_LATENCIES = {"queue": _abi.PUMICE_LATENCY_QUEUE, "first_token": _abi.PUMICE_LATENCY_FIRST_TOKEN,
              "token_interval": _abi.PUMICE_LATENCY_TOKEN_INTERVAL, "total": _abi.PUMICE_LATENCY_TOTAL}
_WAIT_US = 50_000  # then threads that wait look whether their answer came


def _sampling(temperature=None, top_k=None, top_p=None, min_p=None, repeat_penalty=None, frequency_penalty=None,
              presence_penalty=None, seed=None, logit_bias=None):
    """A pumice_sampling, or None where nothing was said."""
    given = {name: value for name, value in locals().items() if value is not None and name != "logit_bias"}
    if not given and logit_bias is None:
        return None
    if logit_bias:
        given["logit_biases"] = array(_abi.pumice_logit_bias, [(token, bias) for token, bias in logit_bias.items()])
        given["n_logit_biases"] = len(logit_bias)
    return new(_abi.pumice_sampling, **given)


def _choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is not one of {', '.join(choices)}")
    return choices[value]


class Engine(Handle):
    """What generates. `context_tokens` of a request, `n_sequences` that run at once, `kv_tokens` that the cache holds,
    `kv_type` "f16", "q8_0", …, `overflow` "stop", "shift" or "truncate" where the context is full; pumice.h explains all."""

    def __init__(self, model, *, overflow="stop", **options):
        options = new(_abi.pumice_engine_options, overflow=_choice("overflow", overflow, _OVERFLOWS), **options)
        pointer = ctypes.c_void_p()
        call("engine_create", model.pointer, ctypes.byref(options), ctypes.byref(pointer))
        super().__init__(pointer, "engine_close")
        self.model = model
        self._polling = threading.Lock()  # the library's polling thread: who has it
        self._arrived = threading.Condition()
        self._answers = weakref.WeakValueDictionary()  # by request

    # ---- one request

    def generate(self, prompt, *, max_tokens=0, **options):
        """An Answer that continues a text (or token ids). `options`: those of Session.say and of sampling, and of an answer
        without a session service_class ("normal", "interactive", "batch"), priority, salt, max_tokens_per_second and
        adapter."""
        return self._submit(0, prompt=prompt, max_tokens=max_tokens, **options)

    def chat(self, messages, *, max_tokens=0, **options):
        """An Answer to messages [{"role": …, "content": …}], by the model's chat template."""
        return self._submit(0, messages=messages, max_tokens=max_tokens, **options)

    def ask(self, messages, *, max_tokens=0, **options):
        """An Answer in parts to messages as OpenAI has them, of any role. `options`: those of Session.ask."""
        return self._submit(0, asked=messages, max_tokens=max_tokens, **options)

    def session(self, *, system=None, service_class="normal", priority=0, salt=None, max_tokens_per_second=0,
                sentences=False, adapter=None, **sampling):
        """A Session: a conversation, or a character. `sentences`: its text comes in whole ones. `adapter`: the name of one of
        the model's. `sampling`: temperature, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty, seed,
        logit_bias."""
        options = new(_abi.pumice_session_options, sampling=_sampling(**sampling),
                      service_class=_choice("service_class", service_class, _CLASSES), priority=priority, salt=salt,
                      max_tokens_per_second=max_tokens_per_second, sentences=int(sentences), adapter=adapter)
        number = ctypes.c_uint64()
        call("session_open", self.pointer, ctypes.byref(options), ctypes.byref(number))
        return Session(self, number.value, system)

    def restore(self, data, *, tokens_only=False):
        """The Session that Session.save gave, of sources that you trust."""
        options = new(_abi.pumice_restore_options, tokens_only=int(tokens_only))
        number = ctypes.c_uint64()
        with self._polling:
            call("session_restore", self.pointer, data, len(data), ctypes.byref(options), ctypes.byref(number))
        return Session(self, number.value)

    def set_mode(self, mode):
        """"fast", "graphics" or "background": how the engine shares its device with others."""
        call("set_mode", self.pointer, _choice("mode", mode, _MODES))

    def set_memory_budget(self, n_bytes):
        """Of all engines on the device; None: no budget."""
        with self._polling:
            call("set_memory_budget", self.pointer, _abi.PUMICE_NO_LIMIT if n_bytes is None else n_bytes)

    def stats(self):
        """A dict of what pumice_stats has."""
        stats = new(_abi.pumice_stats)
        call("get_stats", self.pointer, ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in stats._fields_ if name != "struct_size"}

    def latency(self, kind):
        """A dict of what pumice_latency has, of "queue", "first_token", "token_interval" or "total"."""
        latency = new(_abi.pumice_latency)
        call("get_latency", self.pointer, _choice("kind", kind, _LATENCIES), ctypes.byref(latency))
        return {name: getattr(latency, name) for name, _ in latency._fields_ if name != "struct_size"}

    def prewarm(self, microseconds=0):  # pylint: disable=redefined-outer-name
        """Compiles kernels for about that long, one at least; whether all are there. For engines with `prewarm_later`."""
        done, total = ctypes.c_uint32(), ctypes.c_uint32()
        with self._polling:
            call("prewarm", self.pointer, microseconds, ctypes.byref(done), ctypes.byref(total))
        return done.value == total.value

    def poll(self, microseconds=0):  # pylint: disable=redefined-outer-name
        """One step of work, for programs that draw frames: as much as keeps the device busy for that long. Answers then
        have what came (Answer.take)."""
        with self._polling:
            call("poll", self.pointer, microseconds)
            self._take_events()

    # ---- inside

    def _submit(self, session, *, prompt=None, messages=None, max_tokens=0, stop=(), timeout=None, ignore_end=False,
                special=False, constraint=None, schema=None, grammar=None, regex=None, log_probs=None, asked=None, tools=None,
                tool_choice=None, template_variables=None, speculation="off", max_draft_tokens=None, scores=False,
                shares_prompt_with=None, service_class=None, priority=None, salt=None, max_tokens_per_second=None, adapter=None,
                **sampling):
        if constraint is None and any(text is not None for text in (schema, grammar, regex)):
            constraint = Constraint(self.model, schema=schema, grammar=grammar, regex=regex)
        options = {"max_new_tokens": max_tokens, "sampling": _sampling(**sampling), "special": int(special),
                   "ignore_end": int(ignore_end), "timeout_us": microseconds(timeout),
                   "constraint": None if constraint is None else constraint.pointer,
                   "speculation": _choice("speculation", speculation, _SPECULATIONS), "max_draft_tokens": max_draft_tokens,
                   "scores": int(scores),
                   "shares_prompt_with": None if shares_prompt_with is None else shares_prompt_with.request}
        if any(value is not None for value in (service_class, priority, salt, max_tokens_per_second, adapter)):
            options["alone"] = new(_abi.pumice_session_options, priority=priority, salt=salt, adapter=adapter,
                                   max_tokens_per_second=max_tokens_per_second,
                                   service_class=_choice("service_class", service_class or "normal", _CLASSES))
        stops = [stop] if isinstance(stop, str) else list(stop)
        if stops:
            options |= {"stops": array(_abi.pumice_string, [string(one) for one in stops]), "n_stops": len(stops)}
        if isinstance(prompt, (str, bytes)):
            options["text"] = prompt
        elif prompt is not None:
            options |= {"tokens": array(ctypes.c_uint32, list(prompt)), "n_tokens": len(prompt)}
        if messages is not None:
            texts = [(string(one["role"]), string(one["content"])) for one in messages]  # kept until it is submitted
            options |= {"messages": array(_abi.pumice_message, [_abi.pumice_message(*pair) for pair in texts]),
                        "n_messages": len(texts)}
        if asked is not None:
            options |= {"parts": 1, "messages_json": json.dumps(asked), "tool_choice": tool_choice,
                        "tools_json": None if tools is None else json.dumps(tools),
                        "template_variables_json": None if template_variables is None else json.dumps(template_variables)}
        elif tools is not None or tool_choice is not None or template_variables is not None:
            raise ValueError("tools, tool_choice and template_variables are for `ask`")
        if log_probs is not None:
            options |= {"log_probs": 1, "n_top_log_probs": log_probs}
        request = new(_abi.pumice_request_options, **options)
        number = ctypes.c_uint64()
        with self._arrived:  # no event of it is taken before it is known
            call("submit", self.pointer, session, ctypes.byref(request), ctypes.byref(number))
            answer = Answer(self, number.value, log_probs is not None)
            self._answers[number.value] = answer
            self._arrived.notify_all()
        return answer

    def _work(self, answer):
        """Until that answer has something new, by whichever thread."""
        while not answer.has_news():
            if self._polling.acquire(blocking=False):
                try:
                    call("poll", self.pointer, _abi.PUMICE_NO_LIMIT)
                    self._take_events()
                    if not answer.has_news():
                        call("wait", self.pointer, _WAIT_US)
                finally:
                    self._polling.release()
                    with self._arrived:
                        self._arrived.notify_all()
            else:
                with self._arrived:
                    if not answer.has_news():
                        self._arrived.wait(_WAIT_US / 1e6)

    def _take_events(self):
        while True:
            event = new(_abi.pumice_event)
            call("next_event", self.pointer, ctypes.byref(event))
            if event.kind == _abi.PUMICE_EVENT_NONE:
                return
            with self._arrived:
                answer = self._answers.get(event.request)
            if answer is not None:
                answer.add(event)


class Answer:
    """What a request says: pieces of text as they come, to be iterated over, also with `async for`.

    Of all that was taken so far: `text`, `tokens`, `log_probs`; `scores` of its prompt, (token, how probable it was behind
    those before it); `computed_tokens` of prompt and answer. Once it has ended: `end_reason` ("stop", "length",
    "stop_string", "window", "cancelled", "timeout"), `usage`. An answer that nobody holds any more is cancelled.

    Of one that was asked for in parts (`ask`) also `parts`, in order: {"type": "reasoning" or "text", "text": …} and {"type":
    "call", "id", "name", "arguments" (JSON), "complete"}; `reasoning` and `content` of these, and `calls`."""

    def __init__(self, engine, request, has_log_probs):
        self._engine = engine
        self.request = request
        self._has_log_probs = has_log_probs
        self._pieces = collections.deque()
        self._error = None
        self._finished = False
        self.text = ""
        self.tokens = []
        self.log_probs = []
        self.scores = []
        self.computed_tokens = 0
        self.parts = []
        self.end_reason = None
        self.usage = None

    def add(self, event):
        """An event of the library's; of Engine alone."""
        self.computed_tokens = event.computed_tokens
        if event.kind == _abi.PUMICE_EVENT_SCORE:
            self.scores.append((event.token, event.log_prob))
        elif event.has_token:
            self.tokens.append(event.token)
            if self._has_log_probs:
                best = [(one.token, one.log_prob) for one in event.top_log_probs[:event.n_top_log_probs]]
                self.log_probs.append((event.log_prob, best))
        for part in event.parts[:event.n_parts]:
            self._add_part(part)
        piece = text_of(event.text)
        if event.kind == _abi.PUMICE_EVENT_FINISHED:
            self.end_reason = _END_REASONS.get(event.end_reason)
            self.usage = {"prompt_tokens": event.prompt_tokens, "cached_tokens": event.cached_tokens,
                          "generated_tokens": event.generated_tokens, "first_token_s": event.first_token_us / 1e6,
                          "total_s": event.total_us / 1e6, "drafted_tokens": event.drafted_tokens,
                          "accepted_tokens": event.accepted_tokens, "forgotten_questions": event.forgotten_questions}
            if event.status != _abi.PUMICE_OK:
                self._error = Error(event.status, text_of(event.message, "replace"))
        if piece:
            self._pieces.append(piece)
        self._finished = self._finished or event.kind == _abi.PUMICE_EVENT_FINISHED

    def _add_part(self, part):
        last = self.parts[-1] if self.parts else {"type": None}
        text = text_of(part.text)
        if part.kind == _abi.PUMICE_PART_CALL_BEGUN:
            self.parts.append({"type": "call", "id": text_of(part.id), "name": text, "arguments": "", "complete": False})
        elif part.kind == _abi.PUMICE_PART_ARGUMENTS:
            last["arguments"] += text
        elif part.kind == _abi.PUMICE_PART_CALL_ENDED:
            last["complete"] = bool(part.complete)
        else:
            kind = "reasoning" if part.kind == _abi.PUMICE_PART_REASONING else "text"
            if last["type"] == kind:
                last["text"] += text
            else:
                self.parts.append({"type": kind, "text": text})

    @property
    def reasoning(self):
        """What it thought, so far."""
        return "".join(part["text"] for part in self.parts if part["type"] == "reasoning")

    @property
    def content(self):
        """What it said, so far: its text without reasoning and calls."""
        return "".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def calls(self):
        """The calls that came, so far."""
        return [part for part in self.parts if part["type"] == "call"]

    def has_news(self):
        """Whether a piece or the end is there."""
        return bool(self._pieces) or self._finished

    def take(self):
        """The text that came since, without waiting: for programs that call Engine.poll."""
        taken = "".join(self._pieces)
        self._pieces.clear()
        self.text += taken
        return taken

    def cancel(self):
        """What came stays; nothing happens to one that has ended."""
        if not self._finished:
            call("cancel", self._engine.pointer, self.request)

    def wait(self):
        """To its end: itself."""
        for _ in self:
            pass
        return self

    def json(self):
        """The whole text, to its end, as a value: of an answer with a schema."""
        return json.loads(self.wait().text)

    @property
    def finished(self):
        """Whether all of it is there."""
        return self._finished

    def __iter__(self):
        return self

    def __next__(self):
        self._engine._work(self)
        if self._pieces:
            return self.take()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def __aiter__(self):
        return self

    async def __anext__(self):
        piece = await asyncio.to_thread(next, self, None)
        if piece is None:
            raise StopAsyncIteration
        return piece

    def __str__(self):
        return self.wait().text

    def __del__(self):
        try:
            self.cancel()
        except (Error, ValueError, AttributeError):
            pass  # it ended meanwhile, or its engine is closed


class Session:
    """A conversation. Made by Engine.session; it remembers what was said."""

    def __init__(self, engine, number, system=None):
        self._engine = engine
        self._number = number
        self._system = system
        self._closing = weakref.finalize(self, _close_session, weakref.ref(engine), number)

    def say(self, text, *, role="user", max_tokens=0, **options):
        """An Answer to what is said. `options`: stop (a str or several), timeout (seconds), one of constraint, schema,
        grammar and regex, log_probs (so many best in each token's place), speculation ("off", "lookup", "auto", "draft",
        "mtp") with max_draft_tokens of a guess, shares_prompt_with (another answer to the same prompt, of which this one is
        another choice), scores (of the prompt's tokens: Answer.scores), and sampling for this answer alone."""
        messages = [{"role": role, "content": text}]
        if self._system is not None:
            messages.insert(0, {"role": "system", "content": self._system})
        answer = self._engine._submit(self._number, messages=messages, max_tokens=max_tokens, **options)
        self._system = None
        return answer

    def ask(self, messages, *, tools=None, tool_choice=None, template_variables=None, max_tokens=0, **options):
        """An Answer in parts to messages as OpenAI has them: roles system, developer, user, assistant and tool. `tools`: a
        list of OpenAI's functions; `tool_choice`: "auto", "none", "required" or a tool's name; `template_variables`: a dict
        such as {"enable_thinking": False}; `options` as of `say`."""
        messages = list(messages)
        if self._system is not None:
            messages.insert(0, {"role": "system", "content": self._system})
        answer = self._engine._submit(self._number, asked=messages, tools=tools, tool_choice=tool_choice,
                                      template_variables=template_variables, max_tokens=max_tokens, **options)
        self._system = None
        return answer

    def go_on(self, text=None, *, max_tokens=0, **options):
        """An Answer that continues the last one or, of sessions without messages, a text."""
        return self._engine._submit(self._number, prompt=text, max_tokens=max_tokens, **options)

    @property
    def tokens(self):
        """What it holds, as ids."""
        return counted(lambda values, capacity, count: call("session_tokens", self._engine.pointer, self._number, values,
                                                            capacity, count), ctypes.c_uint32)

    @property
    def turns(self):
        """How many turns it holds."""
        turns = ctypes.c_uint32()
        call("session_turns", self._engine.pointer, self._number, ctypes.byref(turns))
        return turns.value

    def roll_back(self, turns, *, keep_question=False):
        """To the end of that many turns. `keep_question`: to before the next one's reply, which go_on gives anew."""
        call("session_rollback", self._engine.pointer, self._number, turns, int(keep_question))

    def save(self):
        """Bytes for Engine.restore, with its keys and values."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self._engine._polling:
            call("session_save", self._engine.pointer, self._number, ctypes.byref(data), ctypes.byref(size))
            return ctypes.string_at(data, size.value)

    def close(self):
        """Cancels its answer, if one is under way."""
        self._closing()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _close_session(engine, number):
    engine = engine()
    if engine is None:
        return
    try:
        call("session_close", engine.pointer, number)
    except (Error, ValueError):
        pass  # the engine is closed, and it with it
