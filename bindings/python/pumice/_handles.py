"""Devices, models and constraints."""

import ctypes
import dataclasses
import json
import os
import pathlib
import sys
import threading
import weakref

from . import _abi
from ._library import Error, call, counted, microseconds, new, string, text_of
from ._library import array as array_of
from ._schema import schema_of


class Handle:
    """Something of the library's that is closed once, at the latest when it is collected."""

    def __init__(self, pointer, close):
        self._pointer = pointer
        self._closing = weakref.finalize(self, call, close, pointer)

    @property
    def pointer(self):
        """For calls; raises ValueError once it is closed."""
        if not self._closing.alive:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._pointer

    def close(self):
        """Nothing happens a second time."""
        self._closing()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """`memory_bytes`: of its own. `is_cpu`: a software driver."""

    name: str
    driver: str
    uuid: str
    memory_bytes: int
    is_cpu: bool

    @classmethod
    def of(cls, info):
        return cls(info.name.decode(), info.driver.decode(), info.uuid.decode(), info.memory_bytes, bool(info.is_cpu))


def devices():
    """The devices of this machine; Device takes their index, UUID, or a part of their name."""
    def ask(array, capacity, count):
        if capacity:
            array[0].struct_size = ctypes.sizeof(_abi.pumice_device_info)
        call("device_list", array, capacity, count)
    return [DeviceInfo.of(info) for info in counted(ask, _abi.pumice_device_info)]


def default_cache_directory():
    """Where the program `pumice` keeps compiled kernels too."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return pathlib.Path(base) / "pumice" if base else None
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "pumice"


class Device(Handle):
    """A device, the best one or the one that `selector` names. `cache_directory`: where compiled kernels are kept from run
    to run; None: the user's, "": nowhere. `memory_bytes`: of the device's memory to use at most. `low_priority`: its queue
    yields to those of other programs. `hang_timeout`: seconds without progress after which it counts as lost."""

    def __init__(self, selector=None, *, cache_directory=None, memory_bytes=None, validation=False, debug_log=False,
                 low_priority=False, hang_timeout=None):
        if cache_directory is None:
            cache_directory = default_cache_directory()
        options = new(_abi.pumice_device_options, selector=None if selector is None else str(selector),
                      cache_directory=cache_directory or None, memory_bytes=memory_bytes, validation=int(validation),
                      debug_log=int(debug_log), low_priority=int(low_priority), hang_timeout_us=microseconds(hang_timeout))
        pointer = ctypes.c_void_p()
        call("device_open", ctypes.byref(options), ctypes.byref(pointer))
        super().__init__(pointer, "device_close")

    @property
    def info(self):
        """DeviceInfo."""
        info = new(_abi.pumice_device_info)
        call("device_get_info", self.pointer, ctypes.byref(info))
        return DeviceInfo.of(info)

    def log(self):
        """The lines that the device, its models and engines had to say since the last call: (level, text)."""
        levels = {_abi.PUMICE_LOG_DEBUG: "debug", _abi.PUMICE_LOG_INFO: "info", _abi.PUMICE_LOG_WARNING: "warning",
                  _abi.PUMICE_LOG_ERROR: "error"}
        while True:
            line = new(_abi.pumice_log)
            call("next_log", self.pointer, ctypes.byref(line))
            if line.level == _abi.PUMICE_LOG_NONE:
                return
            yield levels[line.level], text_of(line.line, "replace")

    def estimate(self, path, **engine):
        """The MemoryEstimate of a GGUF file and an engine with these options (Engine), before anything is loaded."""
        if "overflow" in engine:
            raise TypeError("overflow takes no memory")
        options = new(_abi.pumice_engine_options, **engine)
        model = new(_abi.pumice_model_options, path=os.fspath(path), engine=options)
        estimate = new(_abi.pumice_memory_estimate)
        call("model_estimate", self.pointer, ctypes.byref(model), ctypes.byref(estimate))
        return MemoryEstimate(**{field.name: getattr(estimate, field.name) for field in dataclasses.fields(MemoryEstimate)})

    def self_test(self, operations=(), *, timeout=None):
        """The SelfTest of the kernels of these operations, or of all; `timeout`: seconds. Raises Error SELF_TEST_FAILED where
        one is left without a kernel that is right, and CANCELLED when the time was up. The verdict is kept in the cache
        directory, and holds for engines made from then on."""
        options = new(_abi.pumice_self_test_options, operations=",".join(operations),
                      timeout_us=microseconds(timeout))
        result = new(_abi.pumice_self_test_result)
        call("self_test", self.pointer, ctypes.byref(options), ctypes.byref(result))
        return SelfTest(**{field.name: getattr(result, field.name) for field in dataclasses.fields(SelfTest)})

    def begin_load(self, path="", **options):
        """A Loading: what load does, while this thread goes on. `options` are those of load."""
        return Loading(self, path, **options)

    def load(self, path="", **options):
        """The Model in a GGUF file. Takes seconds for a large one. `chat_template`: Jinja, instead of the file's own;
        `answer_format`: how it writes reasoning and calls, by a family's name, instead of what its template shows.
        `open_file`: opens the file of a name, `path` or another part, instead of the system: a binary file object that
        seeks, such as zipfile's. `memory`: the file's bytes, instead of a file. `engine`: a dict of options of the Engine that
        will be made, for which room is left (and which `mtp` must be said in). `embeds`: for Model.embedder instead of
        engines; `pooling`: "mean", "cls" or "last", instead of what the file says. `adapters`: a dict of LoRA adapters for
        sessions and requests, from names to GGUF files (which `open_file` opens too) or their bytes, or to pairs of one of
        these and the scale of all that it adds."""
        return Model(self, path, **options)


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """Cases that ran, those of them that could not for reasons of their own, and kernels."""

    n_cases: int
    n_errors: int
    n_passed: int
    n_failed: int
    n_not_supported: int
    n_not_run: int


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of the device's own memory. `fits`: 0 or 1; `most_context_tokens`: the longest context that would fit;
    `weight_bytes_beside`: weights that would lie in other memory, which is slower; `free_bytes`: what there is."""

    fits: int
    context_tokens: int
    most_context_tokens: int
    trained_context_tokens: int
    total_bytes: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int
    weight_bytes_beside: int
    free_bytes: int


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """`resident_bytes`: on the device, or beside it."""

    name: str
    architecture: str
    resident_bytes: int
    n_vocabulary: int
    n_layers: int
    trained_context_tokens: int
    has_chat_template: bool


class _Files:
    """pumice_files over a function that opens binary file objects. `problem`: what the last one raised."""

    def __init__(self, open_file):
        self.problem = None
        self._open_file = open_file
        self._lock = threading.Lock()  # a file object has one position
        self._files = {}  # by number
        self._n_opened = 0
        kinds = (ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p),
                                  ctypes.POINTER(ctypes.c_uint64)),
                 ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
                                  ctypes.c_size_t),
                 ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p))
        self._functions = [kind(function) for kind, function in zip(kinds, (self._open, self._read_at, self._close))]
        pointers = [ctypes.cast(function, ctypes.c_void_p) for function in self._functions]
        self.struct = new(_abi.pumice_files, **dict(zip(("open", "read_at", "close"), pointers)))

    def _open(self, _, name, number, n_bytes):
        try:
            file = self._open_file(os.fsdecode(name))
            n_bytes[0] = file.seek(0, os.SEEK_END)
        except Exception as error:  # pylint: disable=broad-except
            self.problem = error
            return _abi.PUMICE_BAD_FILE
        self._n_opened += 1
        self._files[self._n_opened] = file
        number[0] = self._n_opened
        return _abi.PUMICE_OK

    def _read_at(self, _, number, offset, to, n_bytes):
        try:
            with self._lock:
                self._files[number].seek(offset)
                data = self._files[number].read(n_bytes)
        except Exception as error:  # pylint: disable=broad-except
            self.problem = error
            return 0
        ctypes.memmove(to, data, len(data))
        return len(data)

    def _close(self, _, number):
        self._files.pop(number).close()


def _adapter(name, given):
    file, scale = given if isinstance(given, tuple) else (given, 1)
    if scale == 0:
        raise ValueError(f"adapter {name}: with a scale of 0 it adds nothing")
    if not isinstance(file, bytes):
        return _abi.pumice_adapter(name=string(name), path=string(os.fspath(file)), scale=scale)
    adapter = _abi.pumice_adapter(name=string(name), memory=ctypes.cast(ctypes.c_char_p(file), ctypes.c_void_p),
                                  memory_bytes=len(file), scale=scale)
    adapter.keep = file
    return adapter


class _Source:
    """pumice_model_options, and what must live as long as the model, which is read again where a device was lost."""

    def __init__(self, path, *, open_file=None, memory=None, engine=None, embeds=False, chat_template=None,
                 answer_format=None, pooling=None, adapters=None):
        self.files = None if open_file is None else _Files(open_file)
        self.memory = memory if memory is None or isinstance(memory, bytes) else bytes(memory)
        self.options = new(_abi.pumice_model_options, path=os.fspath(path), files=self.files and self.files.struct,
                           memory=self.memory and ctypes.cast(ctypes.c_char_p(self.memory), ctypes.c_void_p),
                           memory_bytes=self.memory and len(self.memory),
                           engine=None if engine is None else new(_abi.pumice_engine_options, **engine),
                           embeds=int(embeds), chat_template=chat_template, answer_format=answer_format, pooling=pooling,
                           adapters=array_of(_abi.pumice_adapter, [_adapter(*item) for item in (adapters or {}).items()]),
                           n_adapters=len(adapters or {}))

    def call(self, name, *arguments):
        """As `call`, with what a file object raised as the cause."""
        try:
            call(name, *arguments)
        except Error as error:
            raise error from self.files and self.files.problem


class Model(Handle):
    """Made by Device.load and Loading.take."""

    def __init__(self, device, path, **options):
        source = _Source(path, **options)
        pointer = ctypes.c_void_p()
        source.call("model_load", device.pointer, ctypes.byref(source.options), ctypes.byref(pointer))
        self._own(pointer, source)

    @classmethod
    def of(cls, pointer, source):
        """One that was loaded."""
        model = cls.__new__(cls)
        model._own(pointer, source)
        return model

    def _own(self, pointer, source):
        super().__init__(pointer, "model_close")
        self._source = source

    @property
    def info(self):
        """ModelInfo."""
        info = new(_abi.pumice_model_info)
        call("model_get_info", self.pointer, ctypes.byref(info))
        return ModelInfo(info.name.decode(errors="replace"), info.architecture.decode(errors="replace"), info.resident_bytes,
                         info.n_vocabulary, info.n_layers, info.trained_context_tokens, bool(info.has_chat_template))

    def tokenize(self, text, *, special=True):
        """A list of ids. `special`: as a prompt's start, and "</s>" is the token of that name."""
        view = string(text)
        return counted(lambda array, capacity, count: call("tokenize", self.pointer, view, int(special), array, capacity,
                                                           count), ctypes.c_uint32)

    def detokenize(self, tokens):
        """The text of token ids."""
        ids = (ctypes.c_uint32 * len(tokens))(*tokens)
        return counted(lambda array, capacity, count: call("detokenize", self.pointer, ids, len(ids), array, capacity,
                                                           count), ctypes.c_char).decode()

    def constraint(self, *, schema=None, grammar=None, regex=None):
        """A Constraint that answers are held to: one of a JSON Schema (what schema_of takes, or its text), a GBNF grammar and
        a regular expression. Any thread, and best before it is needed: the first takes some hundred milliseconds."""
        return Constraint(self, schema=schema, grammar=grammar, regex=regex)

    def embedder(self, **options):
        """An Embedder, of a model that was loaded with `embeds`; `options` are those of pumice_embedder_options."""
        return Embedder(self, **options)

    def engine(self, **options):
        """An Engine; see there."""
        from ._engine import Engine  # pylint: disable=import-outside-toplevel,cyclic-import

        return Engine(self, **options)


@dataclasses.dataclass(frozen=True)
class LoadProgress:
    """Bytes of the file's weights; `ended`: Loading.take says how."""

    ended: bool
    done_bytes: int
    total_bytes: int


class Loading(Handle):
    """A model that is being loaded. Made by Device.begin_load; closing cancels it."""

    def __init__(self, device, path, **options):
        self._source = _Source(path, **options)
        pointer = ctypes.c_void_p()
        call("model_load_begin", device.pointer, ctypes.byref(self._source.options), ctypes.byref(pointer))
        super().__init__(pointer, "loading_close")

    def wait(self, seconds=None):
        """The LoadProgress once it has ended, or after that long."""
        progress = new(_abi.pumice_load_progress)
        limit = _abi.PUMICE_NO_LIMIT if seconds is None else int(seconds * 1e6)
        call("loading_wait", self.pointer, limit, ctypes.byref(progress))
        return LoadProgress(progress.phase == _abi.PUMICE_LOAD_ENDED, progress.done_bytes, progress.total_bytes)

    def cancel(self):
        """It ends soon; nothing happens to one that has ended."""
        try:
            call("loading_cancel", self.pointer)
        except Error as error:
            if error.code != _abi.PUMICE_NOT_FOUND:
                raise

    def take(self):
        """The Model, waiting for it. Raises what Device.load does, and Error CANCELLED."""
        self.wait()
        pointer = ctypes.c_void_p()
        self._source.call("loading_take", self.pointer, ctypes.byref(pointer))
        return Model.of(pointer, self._source)


class Embedder(Handle):
    """Makes vectors of texts. Made by Model.embedder. One thread at a time."""

    def __init__(self, model, **options):
        given = new(_abi.pumice_embedder_options, **options)
        pointer = ctypes.c_void_p()
        call("embedder_create", model.pointer, ctypes.byref(given), ctypes.byref(pointer))
        super().__init__(pointer, "embedder_close")
        self._model = model
        info = new(_abi.pumice_embedder_info)
        call("embedder_get_info", pointer, ctypes.byref(info))
        self.width, self.text_tokens = info.width, info.text_tokens

    def embed(self, texts):
        """A list of vectors, lists of `width` numbers, one for each text."""
        views = [string(text) for text in texts]
        array = (_abi.pumice_string * len(views))(*views)
        vectors, count = (ctypes.c_float * (len(views) * self.width))(), ctypes.c_size_t()
        call("embed", self.pointer, array, len(views), vectors, len(vectors), ctypes.byref(count))
        return [vectors[i:i + self.width] for i in range(0, len(vectors), self.width)]


class Constraint(Handle):
    """Made by Model.constraint; for as many requests of the model as like, at once too."""

    def __init__(self, model, *, schema=None, grammar=None, regex=None):
        given = [(kind, text) for kind, text in ((_abi.PUMICE_CONSTRAINT_JSON_SCHEMA, schema),
                                                 (_abi.PUMICE_CONSTRAINT_GRAMMAR, grammar),
                                                 (_abi.PUMICE_CONSTRAINT_REGEX, regex)) if text is not None]
        if len(given) != 1:
            raise TypeError("one of schema, grammar and regex is needed")
        kind, text = given[0]
        if not isinstance(text, str):
            text = json.dumps(schema_of(text))
        options = new(_abi.pumice_constraint_options, kind=kind, text=text)
        pointer = ctypes.c_void_p()
        call("constraint_compile", model.pointer, ctypes.byref(options), ctypes.byref(pointer))
        super().__init__(pointer, "constraint_close")
