// Pumice: language models inside a program that has other things to do. C99, and the only ABI;
// pumice.hpp is C++ over it. docs/API.md goes through it by topic.
//
// Handles. A device is opened, models are loaded on it, engines are made of models. Each keeps
// alive what it was made of, so they may be closed in any order. A handle that was closed is an
// invalid pointer. Sessions and requests are numbers of one engine and never reused: one that has
// ended, or that belongs to another engine, gives PUMICE_NOT_FOUND.
//
// Statuses. Every call that can fail returns a pumice_status and leaves a line of text for
// pumice_last_error. No exception, signal or abort comes out of a call. Outputs are cleared first,
// so that after an error they are zero.
//
// Structs begin with struct_size, which the caller sets to sizeof the struct; zeros elsewhere are
// the defaults. Structs of callers compiled with an older or newer header are understood, but a
// newer one may not ask for what this library does not know. Elements of arrays without a
// struct_size (pumice_string, pumice_message, pumice_logit_bias, pumice_adapter) stay as they are:
// what they lack will come as another array at the end of the struct that has them.
//
// Threads. Any thread may open and close, load, submit, cancel, and ask. For each engine one thread
// at a time may make the calls marked "polling thread"; a second one gets PUMICE_BUSY. Closing a
// handle while another thread is in a call with it is an error of the host. The library calls the
// host back only through the functions it was given (pumice_allocator, pumice_files). None of its
// threads outlives a call, but those of pumice_model_load_begin and of a prefix store, which end
// with their handle.
//
// Memory that the library gives out stays its own; each call says how long it is valid. The one
// large part of host memory, keys and values that left the device, may come from an allocator
// (pumice_engine_options.allocator). Everything else comes from malloc and operator new, since most
// of it belongs to the standard library and the Vulkan driver.
#ifndef PUMICE_PUMICE_H
#define PUMICE_PUMICE_H

#include <stddef.h>
#include <stdint.h>

// On Windows a DLL is built with PUMICE_BUILDS_DLL, and programs that link one may define
// PUMICE_USES_DLL, which saves a jump in each call. The static library needs neither.
#if defined(_WIN32) && defined(PUMICE_BUILDS_DLL)
#define PUMICE_API __declspec(dllexport)
#elif defined(_WIN32) && defined(PUMICE_USES_DLL)
#define PUMICE_API __declspec(dllimport)
#elif defined(_WIN32)
#define PUMICE_API
#else
#define PUMICE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PUMICE_VERSION_MAJOR 0
#define PUMICE_VERSION_MINOR 1
#define PUMICE_VERSION_PATCH 0

typedef struct pumice_device pumice_device;
typedef struct pumice_model pumice_model;
typedef struct pumice_engine pumice_engine;
typedef struct pumice_constraint pumice_constraint;
typedef struct pumice_loading pumice_loading;
typedef struct pumice_embedder pumice_embedder;
// 0 means none; all are below 2^53, so that a double holds them exactly.
typedef uint64_t pumice_session;
typedef uint64_t pumice_request;
// 0 or 1; anything else is an error.
typedef uint32_t pumice_bool;

typedef int32_t pumice_status;
enum {
  PUMICE_OK = 0,
  PUMICE_INVALID_ARGUMENT = 1,  // an argument is wrong; the message names it
  PUMICE_NO_DEVICE = 2,         // no usable Vulkan device, or not the one asked for
  PUMICE_BAD_FILE = 3,          // missing, unreadable, malformed or unsupported
  PUMICE_DOES_NOT_FIT = 4,      // memory, context or another capacity; the message has the numbers
  PUMICE_SELF_TEST_FAILED = 5,  // a kernel is known to be wrong on this device
  PUMICE_DEVICE_LOST = 6,       // and not yet reopened; pumice_poll goes on trying
  PUMICE_CANCELLED = 7,
  PUMICE_INTERNAL = 8,       // a bug, or a driver or system that failed
  PUMICE_OUT_OF_MEMORY = 9,  // of the host
  PUMICE_NOT_FOUND = 10,     // no such session or request, or no longer
  PUMICE_BUSY = 11,          // another thread is in such a call, or a session has a request
  PUMICE_TOO_SMALL = 12      // the caller's array: the count needed is given
};

// UTF-8 of `length` bytes, or up to a NUL with PUMICE_NUL. {NULL, 0} is empty. Texts for a model
// (prompts, messages, stops, what is tokenized) that are not UTF-8 are PUMICE_INVALID_ARGUMENT, and
// the message says at which byte; paths and salts may be any bytes.
typedef struct pumice_string {
  const char* data;
  size_t length;
} pumice_string;
#define PUMICE_NUL SIZE_MAX

static inline pumice_string pumice_str(const char* text) {
  pumice_string string;
  string.data = text;
  string.length = text != NULL ? PUMICE_NUL : 0;
  return string;
}

// "0.1.0" of the library, which may be newer than this header.
PUMICE_API const char* pumice_version(void);
// "PUMICE_OK", …; never NULL.
PUMICE_API const char* pumice_status_name(pumice_status status);
// What went wrong in this thread's last call that failed: one line, "" if none has. Valid until
// this thread's next call that fails.
PUMICE_API const char* pumice_last_error(void);

// ---- devices

typedef struct pumice_device_info {
  size_t struct_size;
  char name[256];         // NUL-terminated, as the next two
  char driver[256];       // and its version
  char uuid[40];          // what pumice_device_options.selector takes
  uint64_t memory_bytes;  // of its own
  pumice_bool is_cpu;     // a software driver
} pumice_device_info;

typedef struct pumice_device_options {
  size_t struct_size;
  // An index, a UUID or a part of a name; empty: the best device.
  pumice_string selector;
  // A folder in which compiled pipelines, a self-test's verdict and the costs of steps are kept
  // from run to run; made when needed. Empty: nothing is kept.
  pumice_string cache_directory;
  // Bytes of the device's memory to use at most; 0: what the driver allows.
  uint64_t memory_bytes;
  pumice_bool validation;  // Vulkan's validation layer, which must be installed
  pumice_bool debug_log;   // also what only developers want to read
  // For as long as the device is open, its queue yields to those of other programs, if the driver
  // grants that: for PUMICE_MODE_BACKGROUND.
  pumice_bool low_priority;
  // After how long without progress a device that has work counts as lost; 0: ten minutes.
  uint64_t hang_timeout_us;
} pumice_device_options;

// The devices of this machine. `devices`: an array of `capacity` structs, of which the first has
// its struct_size set (all are written with it); NULL with capacity 0 to ask for the number.
// `n_devices`: how many there are. PUMICE_TOO_SMALL: the array holds the first.
PUMICE_API pumice_status pumice_device_list(pumice_device_info* devices, size_t capacity,
                                            size_t* n_devices);
// Opens a device for the library. `options` may be NULL. Slow; meant to be done once per program.
// If it fails, pumice_last_error is all there is: without a device there is no log. A relative
// cache_directory, like a relative model path, starts at the current folder.
PUMICE_API pumice_status pumice_device_open(const pumice_device_options* options,
                                            pumice_device** device);
PUMICE_API pumice_status pumice_device_get_info(const pumice_device* device,
                                                pumice_device_info* info);
// NULL is ignored, as by every closing call.
PUMICE_API void pumice_device_close(pumice_device* device);

typedef int32_t pumice_log_level;
enum {
  PUMICE_LOG_NONE = 0,
  PUMICE_LOG_DEBUG,
  PUMICE_LOG_INFO,
  PUMICE_LOG_WARNING,
  PUMICE_LOG_ERROR
};

typedef struct pumice_log {
  size_t struct_size;
  pumice_log_level level;  // PUMICE_LOG_NONE: there is no line
  uint32_t n_dropped;      // lines lost before this one; a few hundred are kept
  pumice_string line;      // NUL-terminated; valid until the next call for this device
} pumice_log;
// The next line that the device, its models or their engines had to say. One thread at a time.
PUMICE_API pumice_status pumice_next_log(pumice_device* device, pumice_log* log);

typedef struct pumice_self_test_options {
  size_t struct_size;
  pumice_string operations;  // names separated by commas, "gemm,gemv"; empty: all
  uint64_t timeout_us;       // it ends before the next case once that much has passed; 0: never
} pumice_self_test_options;

typedef struct pumice_self_test_result {
  size_t struct_size;
  uint32_t n_cases;   // that ran
  uint32_t n_errors;  // of these, for reasons of their own
  // Kernels, those of earlier tests included:
  uint32_t n_passed;
  uint32_t n_failed;         // they are not used any more: others are, where there are any
  uint32_t n_not_supported;  // the device lacks what they need
  uint32_t n_not_run;
} pumice_self_test_result;

// Whether the device computes right: runs the kernels on cases whose results are known, which takes
// seconds on a GPU and minutes on a software driver, beside whatever else runs. What was found out is
// kept in the cache_directory, where one is, holds for engines made from then on, and is written
// before each case: one that takes the process down is not run again as it was. From any thread.
// `options` may be NULL. PUMICE_SELF_TEST_FAILED: an operation is left without a kernel that is
// right, or cases could not run. PUMICE_CANCELLED: the time was up. `result` is written then too.
PUMICE_API pumice_status pumice_self_test(pumice_device* device,
                                          const pumice_self_test_options* options,
                                          pumice_self_test_result* result);

// ---- models

// The host's own files: archives of a game, assets of an app. Called within pumice_model_load and
// pumice_model_estimate, in the thread of pumice_model_load_begin, and within any call for the model,
// its engines and its embedders that loads more (pumice_engine_options.draft_model, mtp) or finds
// that the device was lost and loads the model again; each time by several threads of the library
// too. They must not call the library. The functions and `user` must stay valid until the model, its
// engines and its embedders are closed.
typedef struct pumice_files {
  size_t struct_size;
  void* user;
  // Opens the file of that name, UTF-8 with a NUL: `path`, or the same with the number of another
  // part, "…-00002-of-00003.gguf". PUMICE_OK: *file is what the next two get, and *n_bytes its size.
  // Anything else: it cannot be opened, and the load fails with PUMICE_BAD_FILE.
  pumice_status (*open)(void* user, const char* name, void** file, uint64_t* n_bytes);
  // Up to `n_bytes` (at least one) from `offset` on; returns how many it wrote to `bytes`. Where these
  // are fewer than were asked for, the rest is asked for next; 0: it cannot be read. Several threads
  // at once may read one file.
  size_t (*read_at)(void* user, void* file, uint64_t offset, void* bytes, size_t n_bytes);
  // Once for each file that was opened; NULL: nothing is to be closed.
  // An adapter's file is closed with the last of them.
  void (*close)(void* user, void* file);
} pumice_files;

// A LoRA adapter of a model: a GGUF file as llama.cpp's converter makes them, of matrices that are
// added to the model's for sessions and requests that name it (pumice_session_options.adapter).
typedef struct pumice_adapter {
  pumice_string name;
  // A file of the system's or, with pumice_model_options.files, a name that these know.
  pumice_string path;
  // Or its bytes, in memory that stays as it is as long as the model's; `path` may be empty then.
  const void* memory;
  uint64_t memory_bytes;
  float scale;      // of all that it adds; 0: 1
  uint32_t unused;  // not read
} pumice_adapter;

typedef struct pumice_model_options {
  size_t struct_size;
  pumice_string path;  // a GGUF file; of several parts, the first
  // The engine that will be created for it. Weights that do not fit on the device together with
  // that engine stay in memory beside it, if kernels can read any; what does not fit even so is
  // refused before anything is loaded. NULL: weights make room for a default engine, which need not
  // fit.
  const struct pumice_engine_options* engine;
  pumice_string chat_template;  // Jinja, instead of the file's own; empty: that
  // How the model writes reasoning and calls (pumice_request_options.parts), by the name of a family
  // of models ("hermes", "qwen-xml", "harmony", …); empty: as its template shows. A name that is not
  // known is an error of the first request that needs it.
  pumice_string answer_format;
  // `path` is a name that these know, as it stands. NULL: a file of the system's.
  const pumice_files* files;
  // The file's bytes, in memory that stays as it is until the model, its engines and its embedders
  // are closed, and of which no second copy is made: a mapped file, say. `path` is then a name for messages and may be
  // empty. One file only; a model in several parts needs `files`. NULL: none.
  const void* memory;
  uint64_t memory_bytes;
  // 1: what embedders are made of, and no engines, so `engine` must be NULL. `pooling`: how the
  // vectors of a text's tokens become one, "mean", "cls" (the first) or "last"; empty: as the file
  // says. A model that writes text embeds too, if one of the two says how.
  pumice_bool embeds;
  uint32_t unused;  // not read
  pumice_string pooling;
  // At most 256, all in the device's memory; none of a model that embeds. Requests without one are
  // as they would be. PUMICE_INVALID_ARGUMENT: two of one name. PUMICE_BAD_FILE: one of another
  // model, or that adds to embeddings or experts; the message names it.
  const pumice_adapter* adapters;
  size_t n_adapters;
} pumice_model_options;

typedef struct pumice_model_info {
  size_t struct_size;
  char name[256];  // NUL-terminated, as the next
  char architecture[64];
  uint64_t resident_bytes;  // on the device, or beside it
  uint32_t n_vocabulary;    // token ids are below it
  uint32_t n_layers;
  uint32_t trained_context_tokens;
  pumice_bool has_chat_template;
} pumice_model_info;

// Reads the file and uploads the weights: seconds for a large model, in this thread. Weights for
// which the device has no room are in memory beside it (pumice_stats.weight_bytes_beside), and the
// log has a warning: steps are slower. PUMICE_DOES_NOT_FIT: the message has the numbers.
PUMICE_API pumice_status pumice_model_load(pumice_device* device,
                                           const pumice_model_options* options,
                                           pumice_model** model);

typedef int32_t pumice_load_phase;
enum {
  PUMICE_LOAD_READING = 0,  // the file's description and its vocabulary
  PUMICE_LOAD_WEIGHTS = 1,  // the bytes count
  PUMICE_LOAD_ENDED = 2     // pumice_loading_take says how
};

typedef struct pumice_load_progress {
  size_t struct_size;
  pumice_load_phase phase;
  uint32_t unused;
  uint64_t done_bytes;
  uint64_t total_bytes;  // of the file's weights; 0: not known yet
} pumice_load_progress;

// The same in a thread of the library's, which ends with the handle at the latest, while the host
// goes on. The calls for the handle may come from any thread; of the options nothing but functions and
// memory is needed once this returns. Errors of the file come from pumice_loading_take.
PUMICE_API pumice_status pumice_model_load_begin(pumice_device* device,
                                                 const pumice_model_options* options,
                                                 pumice_loading** loading);
// Returns when it has ended, and after that long at the latest; 0 asks how far it is.
PUMICE_API pumice_status pumice_loading_wait(pumice_loading* loading, uint64_t microseconds,
                                             pumice_load_progress* progress);
// It ends with PUMICE_CANCELLED when it reads next, a few MiB later at most, and keeps nothing.
// PUMICE_NOT_FOUND: it has ended, or was cancelled before.
PUMICE_API pumice_status pumice_loading_cancel(pumice_loading* loading);
// The model, once, or why there is none: what pumice_model_load returns, and PUMICE_CANCELLED.
// PUMICE_BUSY: it has not ended. PUMICE_NOT_FOUND: the model was taken before.
PUMICE_API pumice_status pumice_loading_take(pumice_loading* loading, pumice_model** model);
// Cancels it and waits for that, if it has not ended. A model that was taken stays.
PUMICE_API void pumice_loading_close(pumice_loading* loading);

PUMICE_API pumice_status pumice_model_get_info(const pumice_model* model, pumice_model_info* info);
PUMICE_API void pumice_model_close(pumice_model* model);

// What a model and its engine would take of a device's own memory, in bytes.
typedef struct pumice_memory_estimate {
  size_t struct_size;
  pumice_bool fits;  // both could be made now, part of the weights beside the device if need be
  uint32_t context_tokens;  // of the engine: what its options say, or stand for with 0
  // The longest that would fit instead; 0: none does.
  uint32_t most_context_tokens;
  uint32_t trained_context_tokens;
  uint64_t total_bytes;  // of which the next three are the largest part
  uint64_t weight_bytes;
  uint64_t kv_bytes;
  uint64_t activation_bytes;
  uint64_t weight_bytes_beside;  // weights that would lie in memory beside the device: slower
  uint64_t free_bytes;           // what the device has left for all of that
} pumice_memory_estimate;

// Before anything is loaded: reads the file's description alone, and allocates nothing on the device.
// The engine is the one of the options, or a default one. From any thread. That it does not fit is
// an answer and not an error.
PUMICE_API pumice_status pumice_model_estimate(pumice_device* device,
                                               const pumice_model_options* options,
                                               pumice_memory_estimate* estimate);

// Tokens of a text. `special`: as a prompt's start, with the marks that the model expects there,
// and texts such as "</s>" are the tokens of that name. NULL with capacity 0 asks for the number.
PUMICE_API pumice_status pumice_tokenize(const pumice_model* model, pumice_string text,
                                         pumice_bool special, uint32_t* tokens, size_t capacity,
                                         size_t* n_tokens);
// The text of tokens, without a NUL; unfinished characters at the end are U+FFFD.
PUMICE_API pumice_status pumice_detokenize(const pumice_model* model, const uint32_t* tokens,
                                           size_t n_tokens, char* text, size_t capacity,
                                           size_t* n_bytes);

// ---- constraints

typedef int32_t pumice_constraint_kind;
enum {
  // JSON that is valid under a JSON Schema (drafts 4 to 2020-12); "{}" is any JSON. What a schema
  // says and cannot be held to is an error that names the place.
  PUMICE_CONSTRAINT_JSON_SCHEMA = 0,
  PUMICE_CONSTRAINT_GRAMMAR = 1,  // GBNF, from its rule `root` on
  PUMICE_CONSTRAINT_REGEX = 2     // of the whole text
};

typedef struct pumice_constraint_options {
  size_t struct_size;
  pumice_constraint_kind kind;
  pumice_string text;  // the schema, grammar or regular expression
} pumice_constraint_options;

// What answers are to be held to, ready for pumice_request_options.constraint of requests of the
// model, as many at once as like. From any thread, and best before it is needed: milliseconds, and
// with a model's first one some hundred more. PUMICE_DOES_NOT_FIT: it takes more work than a
// constraint may cost.
PUMICE_API pumice_status pumice_constraint_compile(const pumice_model* model,
                                                   const pumice_constraint_options* options,
                                                   pumice_constraint** constraint);
// Requests that have it keep what they need.
PUMICE_API void pumice_constraint_close(pumice_constraint* constraint);

// ---- engines

typedef int32_t pumice_overflow;
enum {
  PUMICE_OVERFLOW_STOP = 0,     // a request that fills its context ends
  PUMICE_OVERFLOW_SHIFT = 1,    // older text makes room, and it goes on
  PUMICE_OVERFLOW_TRUNCATE = 2  // as SHIFT; and prompts that do not fit lose their start
};

// Host memory that the host provides. Both functions are called by the thread that is in a call for
// the engine, pumice_engine_close included, and one at a time.
typedef struct pumice_allocator {
  size_t struct_size;
  void* user;
  // `n_bytes`, aligned to `alignment`, a power of two; NULL: no memory, and keys and values are
  // computed again when they are needed.
  void* (*allocate)(void* user, size_t n_bytes, size_t alignment);
  void (*free)(void* user, void* memory, size_t n_bytes);
} pumice_allocator;

typedef struct pumice_engine_options {
  size_t struct_size;
  uint32_t context_tokens;  // of one request; 0: what the model was made for, at most 4096
  uint32_t n_sequences;     // requests that run at once, others wait; 0: 1
  uint64_t kv_tokens;     // what the KV pool holds, cached prefixes included; 0: all sequences full
  uint32_t token_budget;  // of a step; 0: 512
  uint32_t chunk_tokens;  // of one prompt in a step; 0: 512
  // The time between a request's tokens to keep to while other prompts are read; 0: any.
  uint32_t token_interval_us;
  pumice_overflow overflow;
  pumice_string kv_type;      // "f16", …; empty: f16
  pumice_string arithmetic;   // "auto", "f32", "f16", "i8"; empty: auto
  uint64_t cache_host_bytes;  // host memory for KV that leaves the device
  pumice_bool invariant;      // results are the same bits in every batch and chunking; slower
  pumice_bool no_prefix_cache;
  // Kernels are compiled by pumice_prewarm instead of while the engine is created.
  pumice_bool prewarm_later;
  const pumice_allocator* allocator;  // of cache_host_bytes, one page after the other; NULL: none
  // Between service classes: one that was not served for so long gets a turn. 0: a minute;
  // PUMICE_NO_LIMIT: never.
  uint64_t aging_us;
  // How many of a step's tokens generation of the other classes leaves to that of each.
  uint32_t reserved_interactive_tokens;
  uint32_t reserved_normal_tokens;
  uint32_t reserved_batch_tokens;
  // For PUMICE_SPECULATION_MTP: the model's own block that predicts. Its model must have been loaded
  // with it (pumice_model_options.engine).
  pumice_bool mtp;
  // For PUMICE_SPECULATION_DRAFT: the GGUF file of a smaller model with the same tokens, which comes
  // from where the model did: files of the system, or pumice_files. It has the context of the
  // engine, at most 8192 tokens. Its memory, and that of a block that predicts, comes on top of an
  // estimate. Empty: none.
  pumice_string draft_model;
  // A folder of computed prefixes that engines of any processes share, made when needed. What comes
  // from it goes through cache_host_bytes, which must not be 0. Two threads of the library work for
  // it until the engine is closed. Empty: none.
  pumice_string prefix_store;
  uint64_t prefix_store_bytes;  // most of that folder: what was used longest ago goes; 0: 16 GiB
} pumice_engine_options;

// Allocates all that steps need, and compiles all kernels unless that is to happen later. `options`
// may be NULL.
PUMICE_API pumice_status pumice_engine_create(pumice_model* model,
                                              const pumice_engine_options* options,
                                              pumice_engine** engine);
// Requests end without an event.
PUMICE_API void pumice_engine_close(pumice_engine* engine);

// Polling thread. Compiles kernels for about that long, but at least one. Call it until *done ==
// *total, or stop calling it: pumice_poll then spends its time on the rest before it begins any
// request.
PUMICE_API pumice_status pumice_prewarm(pumice_engine* engine, uint64_t microseconds,
                                        uint32_t* done, uint32_t* total);

typedef int32_t pumice_mode;
enum {                         // on top of the budgets of pumice_poll, which always hold
  PUMICE_MODE_FAST = 0,        // as much is submitted at once as a budget allows
  PUMICE_MODE_GRAPHICS = 1,    // in slices of 2 ms at most, two of them at a time
  PUMICE_MODE_BACKGROUND = 2,  // likewise, each when the device has finished the last
};
// How the engine shares its device with others, from the next pumice_poll on. From any thread.
PUMICE_API pumice_status pumice_set_mode(pumice_engine* engine, pumice_mode mode);

// Polling thread. Limits what all engines together allocate of the device's own memory
// (pumice_stats.budgeted_bytes) to `bytes`; PUMICE_NO_LIMIT: no budget, as at first. Returns at
// once: pumice_poll works towards it, even without requests, and brings PUMICE_EVENT_BUDGET_MET.
// From then on it holds, unless other engines take more. Keys and values go first, to host memory
// as far as cache_host_bytes has room; requests go on, those served last wait if need be, and one
// that can no longer fit ends with PUMICE_DOES_NOT_FIT. Then weights of the last layers go to
// memory beside the device's, if there is any: steps are slower. A higher budget brings back what
// was given up. PUMICE_DOES_NOT_FIT, with nothing changed: the message has the smallest budget that
// can be met.
PUMICE_API pumice_status pumice_set_memory_budget(pumice_engine* engine, uint64_t bytes);

// ---- embedders, which make vectors of texts

typedef struct pumice_embedder_options {
  size_t struct_size;
  uint32_t text_tokens;        // of the longest text; 0: what the model was made for, at most 4096
  uint32_t step_tokens;        // of short texts that are computed together; 0: 512
  pumice_string kv_type;       // empty: f32
  pumice_string arithmetic;    // as of pumice_engine_options
  pumice_bool invariant;       // a text's vector is the same bits whatever is beside it; slower
  pumice_bool not_normalized;  // vectors as the model gives them, instead of length 1
} pumice_embedder_options;

typedef struct pumice_embedder_info {
  size_t struct_size;
  uint32_t width;        // numbers of a vector
  uint32_t text_tokens;  // of the longest text
} pumice_embedder_info;

// Allocates what it needs, and compiles its kernels. `options` may be NULL. The model must have been
// loaded for it (pumice_model_options.embeds).
PUMICE_API pumice_status pumice_embedder_create(pumice_model* model,
                                                const pumice_embedder_options* options,
                                                pumice_embedder** embedder);
PUMICE_API pumice_status pumice_embedder_get_info(const pumice_embedder* embedder,
                                                  pumice_embedder_info* info);
// The vectors of texts, one behind the other, in this thread, which waits for the device; one that was
// lost is opened again once. `n_floats`: `n_texts` times the width; NULL with capacity 0 asks for it.
// Of one embedder one thread at a time: PUMICE_BUSY. PUMICE_INVALID_ARGUMENT, PUMICE_DOES_NOT_FIT:
// which text has no tokens, or too many.
PUMICE_API pumice_status pumice_embed(pumice_embedder* embedder, const pumice_string* texts,
                                      size_t n_texts, float* vectors, size_t capacity,
                                      size_t* n_floats);
PUMICE_API void pumice_embedder_close(pumice_embedder* embedder);

// ---- sessions, each a conversation or a character

typedef struct pumice_logit_bias {
  uint32_t token;
  float bias;  // added to its logit; -INFINITY bans it
} pumice_logit_bias;

typedef struct pumice_sampling {
  size_t struct_size;
  float temperature;  // 0: the likeliest token
  uint32_t top_k;     // 0: off, as all below
  float top_p;
  float min_p;
  float repeat_penalty;  // 1 is off too
  float frequency_penalty;
  float presence_penalty;
  uint64_t seed;
  const pumice_logit_bias* logit_biases;
  size_t n_logit_biases;
} pumice_sampling;

typedef int32_t pumice_service_class;
enum {  // served in the order interactive, normal, batch
  PUMICE_SERVICE_NORMAL = 0,
  PUMICE_SERVICE_INTERACTIVE = 1,
  PUMICE_SERVICE_BATCH = 2
};

typedef struct pumice_session_options {
  size_t struct_size;
  const pumice_sampling* sampling;  // of requests that have none of their own; NULL: greedy
  pumice_service_class service_class;
  int32_t priority;  // within a class; lower goes first
  // Sessions of different salts share no cached prefixes, so that none can tell from the time of an
  // answer what another was asked.
  pumice_string salt;
  // Tokens come no faster than this (one late token may be made up for): the pace of speech, with
  // the device free in between. 0: as fast as possible.
  float max_tokens_per_second;
  // Text comes in whole sentences, with the token that shows that one has ended; tokens come one by
  // one as always.
  pumice_bool sentences;
  // The name of one of pumice_model_options.adapters, whose cached prefixes are its own, and in no
  // prefix_store. Empty: the model as it is. PUMICE_INVALID_ARGUMENT: the model has none so named.
  pumice_string adapter;
} pumice_session_options;

// `options` may be NULL. Every call copies the data that its options point to.
PUMICE_API pumice_status pumice_session_open(pumice_engine* engine,
                                             const pumice_session_options* options,
                                             pumice_session* session);
// Cancels its request, if it has one.
PUMICE_API pumice_status pumice_session_close(pumice_engine* engine, pumice_session session);
// What it holds: of its last prompt and the answer, once the answer's last event is there.
PUMICE_API pumice_status pumice_session_tokens(pumice_engine* engine, pumice_session session,
                                               uint32_t* tokens, size_t capacity, size_t* n_tokens);

// What a session holds in turns. Of a session in messages each question is one, with all that follows
// it; of one in text or tokens each request that brought a prompt, with its answer. The last may have
// no answer. What a restored session in text or tokens holds is one turn.
PUMICE_API pumice_status pumice_session_turns(pumice_engine* engine, pumice_session session,
                                              uint32_t* n_turns);
// From any thread. Goes back to the end of turn `n_turns`: what followed is forgotten. With
// `keep_question` the prompt of the next turn stays (of messages all but its last reply), and a
// request without a prompt answers it anew: give that one another seed. What is left is found in the
// cache as far as it is still there. A session in messages has no tokens until its next request, and
// the answer it goes back to is not continued. PUMICE_BUSY: its request has not ended.
// PUMICE_NOT_FOUND, with nothing changed: it has fewer turns, or what is asked for made room for
// later text (PUMICE_OVERFLOW_SHIFT).
PUMICE_API pumice_status pumice_session_rollback(pumice_engine* engine, pumice_session session,
                                                 uint32_t n_turns, pumice_bool keep_question);

// Polling thread. A session as bytes, to continue later, perhaps in another process: what it holds,
// how it samples, and its cached keys and values, so that little is computed again. If its request
// has not ended, what was generated by the last poll is saved (take all events first: what they
// bring is in it), and the request goes on. A request without a prompt continues the restored
// answer, token for token as it would have gone on here, and its first text includes what no event
// had brought. Waits for the device's current work, not for requests. `bytes` are valid until the
// engine's next call of this or of pumice_poll. They contain the session's salt, and are checked
// against damage but not against forgery: restore only bytes from sources that you trust.
PUMICE_API pumice_status pumice_session_save(pumice_engine* engine, pumice_session session,
                                             const void** bytes, size_t* n_bytes);

typedef struct pumice_restore_options {
  size_t struct_size;
  // Ignore keys and values of another kv_type or arithmetic and compute them again.
  pumice_bool tokens_only;
} pumice_restore_options;

// Polling thread. A new session like the saved one. `options` may be NULL. Keys and values are
// cached if there is room without taking any from requests. An adapter is found by its file and
// scale, whatever its name is by now. PUMICE_BAD_FILE, with nothing changed: the bytes are not a
// session, are damaged, or belong to another model, to an adapter that this one does not have or,
// without tokens_only, to another kv_type or arithmetic.
PUMICE_API pumice_status pumice_session_restore(pumice_engine* engine, const void* bytes,
                                                size_t n_bytes,
                                                const pumice_restore_options* options,
                                                pumice_session* session);

// ---- requests

typedef struct pumice_message {
  pumice_string role;  // "system", "user" or "assistant"
  pumice_string content;
} pumice_message;

typedef int32_t pumice_speculation;
enum {
  PUMICE_SPECULATION_OFF = 0,     // nothing is guessed
  PUMICE_SPECULATION_LOOKUP = 1,  // what followed the last tokens where the text had them before
  PUMICE_SPECULATION_AUTO = 2,    // the same, as far as that is expected to be faster
  // What these say (pumice_engine_options). Polls wait for their guesses, so not beside frames.
  PUMICE_SPECULATION_DRAFT = 3,
  PUMICE_SPECULATION_MTP = 4
};

typedef struct pumice_request_options {
  size_t struct_size;
  // The prompt, in one of three forms. A session continues with it behind what it holds; without a
  // session it is everything. Without a prompt a session's last answer continues as if it had not
  // ended; for seeds and penalties it is one answer.
  pumice_string text;
  const uint32_t* tokens;
  size_t n_tokens;
  // By the model's chat template, with the session's before them. A model without one
  // (pumice_model_info.has_chat_template) reads their contents, each on a line of its own, and
  // nothing tells it which role speaks.
  const pumice_message* messages;
  size_t n_messages;
  // In `text`, "</s>" is the token of that name; in `messages` too, now and whenever the session
  // reads them again. Otherwise it is four characters: only the template writes such tokens.
  pumice_bool special;
  uint32_t max_new_tokens;          // 0: what the context holds
  const pumice_sampling* sampling;  // NULL: the session's
  const pumice_string* stops;       // texts that end the request and are left out
  size_t n_stops;
  uint64_t timeout_us;     // from the poll that begins it, also while there is no device; 0: none
  pumice_bool ignore_end;  // the model's end of text does not end the request
  uint32_t unused;         // padding of the first version, which nobody set: not read
  // Each token's event says how probable it was to the model, and so many of the most probable in
  // its place (at most 20).
  pumice_bool log_probs;
  uint32_t n_top_log_probs;
  // Another choice of that request's prompt, with a seed of its own: while that one reads it, this
  // one waits, and computes none of it again. 0: none.
  pumice_request shares_prompt_with;
  // A PUMICE_EVENT_SCORE for each token of the prompt but the first. None of the prompt then comes
  // from the cache, and it is read in chunks of few tokens.
  pumice_bool scores;
  // Steps bring several tokens where guesses are right, the same ones as without.
  pumice_speculation speculation;
  uint32_t max_draft_tokens;  // of a guess; 0: 7
  // Tokens after which no text of it is possible are never chosen, and the answer ends where nothing
  // may follow (PUMICE_END_STOP). An answer that max_new_tokens or a full context ends is the
  // beginning of one. Where the model's chat template lets the answer to messages begin with
  // reasoning, the constraint begins behind that. NULL: none.
  const pumice_constraint* constraint;
  // 1: the answer to messages is told apart into parts (pumice_event.parts), and the session
  // remembers it so: its reasoning, and its calls as calls. The model must have a chat template.
  pumice_bool parts;
  uint32_t unused2;  // not read
  // With `parts`. Messages instead of `messages`: OpenAI's, a JSON array of them, with the roles
  // system, developer, user, assistant ("tool_calls", "reasoning_content") and tool
  // ("tool_call_id": of calls without an id, their results come in the calls' order). If the last
  // one is the assistant's, its answer goes on.
  pumice_string messages_json;
  // With `parts`. What the model may call: OpenAI's tools, a JSON array of {"type": "function",
  // "function": {"name", "description", "parameters"}}. Of a call's arguments nothing is checked,
  // unless the choice asks for one.
  pumice_string tools_json;
  // "auto" or empty: it calls if it likes; "none": it is not told of the tools; "required": it calls
  // one or more; or the name of the tool that it calls. What it has to call it writes in its family's
  // way with arguments that are valid under the tool's schema; like a constraint this begins behind
  // reasoning. PUMICE_INVALID_ARGUMENT: no such tool, or a schema that cannot be held to.
  pumice_string tool_choice;
  // With `parts`. The chat template's variables, a JSON object: {"enable_thinking": false}.
  pumice_string template_variables_json;
  // Of a request without a session: its class, priority, salt, pace and adapter. NULL: the defaults.
  const pumice_session_options* alone;
} pumice_request_options;

// From any thread; the request begins with the next pumice_poll. `session` may be 0. Errors that
// can be known now are refused here; any other ends the request with a status in its last event.
// PUMICE_BUSY: the session's request has not ended. PUMICE_DOES_NOT_FIT: the context is exceeded.
PUMICE_API pumice_status pumice_submit(pumice_engine* engine, pumice_session session,
                                       const pumice_request_options* options,
                                       pumice_request* request);
// From any thread; the next pumice_poll ends it, and its last event says so. No effect on a request
// that has ended but whose last event was not taken yet.
PUMICE_API pumice_status pumice_cancel(pumice_engine* engine, pumice_request request);

#define PUMICE_NO_LIMIT UINT64_MAX

// Polling thread. Continues all requests without waiting for the device. Submits as much work as is
// predicted to keep the device busy for this engine for at most `microseconds`, and at least the
// smallest piece if it has nothing. After an error no request has lost or gained anything, and the
// next call tries again; after PUMICE_OUT_OF_MEMORY, or PUMICE_INTERNAL because of a bug, every
// request has ended and the engine can only be closed. When the device is lost, the call that
// notices reopens it and loads the model, however long that takes, and requests go on.
// PUMICE_DEVICE_LOST: that was not possible yet, or the device is the host's and was not replaced.
PUMICE_API pumice_status pumice_poll(pumice_engine* engine, uint64_t microseconds);
// Polling thread. Sleeps until there is something for pumice_poll to do, and at most that long: a
// request came or is to be cancelled (noticed within a few milliseconds), the device has done
// something, a session's next token is due, a host's queue may be free again. May return early. For
// hosts that draw no frames.
PUMICE_API pumice_status pumice_wait(pumice_engine* engine, uint64_t microseconds);

typedef int32_t pumice_event_kind;
enum {
  PUMICE_EVENT_NONE = 0,      // there is no event
  PUMICE_EVENT_PROGRESS = 1,  // more of a prompt was read
  PUMICE_EVENT_TOKEN = 2,
  PUMICE_EVENT_FINISHED = 3,  // a request's last; may have a token and text too
  // Of no request (0):
  PUMICE_EVENT_BUDGET_MET = 4,   // pumice_set_memory_budget
  PUMICE_EVENT_DEVICE_LOST = 5,  // `message` says how; requests wait
  PUMICE_EVENT_DEVICE_NEW = 6,   // requests go on, on another
  // Of a request with pumice_request_options.scores, in order: a token of its prompt, `log_prob`
  // behind those before it, and in `computed_tokens` how many these are.
  PUMICE_EVENT_SCORE = 7
};

typedef int32_t pumice_end_reason;
enum {
  PUMICE_END_NONE = 0,
  PUMICE_END_LENGTH = 1,  // max_new_tokens
  PUMICE_END_STOP = 2,    // the model's end of text, or the end of its constraint's
  PUMICE_END_STOP_TEXT = 3,
  PUMICE_END_WINDOW = 4,  // the context is full
  PUMICE_END_CANCELLED = 5,
  PUMICE_END_TIMEOUT = 6,
  PUMICE_END_ERROR = 7  // `status` and `message` say which
};

// A part of an answer, as far as an event brings it: pieces of one kind that follow each other, of
// one call, are one text.
typedef int32_t pumice_part_kind;
enum {
  PUMICE_PART_REASONING = 1,
  PUMICE_PART_TEXT = 2,
  PUMICE_PART_CALL_BEGUN = 3,  // of the tool `text`, with an `id`
  PUMICE_PART_ARGUMENTS = 4,   // a call's texts together are a JSON object
  PUMICE_PART_CALL_ENDED = 5
};

typedef struct pumice_answer_part {
  pumice_part_kind kind;
  uint32_t call;         // of parts of a call: which of the answer's, from 0
  pumice_string text;    // NUL-terminated, as `id`
  pumice_string id;      // the model's own or, if it gives none, one that is made
  pumice_bool complete;  // of PUMICE_PART_CALL_ENDED: 0 where the model broke off
  uint32_t unused;
} pumice_answer_part;

// The natural logarithm of a token's probability, before penalties, temperature and filters.
typedef struct pumice_token_log_prob {
  uint32_t token;
  float log_prob;
} pumice_token_log_prob;

typedef struct pumice_event {
  size_t struct_size;
  pumice_event_kind kind;
  pumice_status status;
  pumice_request request;
  pumice_session session;  // 0: none
  pumice_string text;      // whole characters that became final; NUL-terminated, as `message`
  pumice_bool has_token;
  uint32_t token;            // the end of text is one too, and has no text
  uint32_t computed_tokens;  // of prompt and answer so far
  // Of PUMICE_EVENT_FINISHED:
  pumice_end_reason end_reason;
  pumice_string message;  // of an error
  uint32_t prompt_tokens;
  uint32_t cached_tokens;  // of these, not computed
  uint32_t generated_tokens;
  uint32_t forgotten_questions;  // the oldest, left out as the context did not hold them
  uint64_t first_token_us;       // from submission; 0: there was none
  uint64_t total_us;
  // Of a token, where pumice_request_options.log_probs asked for it, and of PUMICE_EVENT_SCORE:
  float log_prob;
  const pumice_token_log_prob* top_log_probs;  // the most probable first
  size_t n_top_log_probs;
  // Of PUMICE_EVENT_FINISHED: tokens that were guessed and verified, and how many of these came.
  uint32_t drafted_tokens;
  uint32_t accepted_tokens;
  // Of a request with pumice_request_options.parts: what its tokens and text so far turned out to
  // mean. Beside `text`, which has all of it as the model wrote it, marks that are text included.
  const pumice_answer_part* parts;
  size_t n_parts;
} pumice_event;

// Polling thread. The next event, in order; what it points to is valid until the engine's next call
// of this.
PUMICE_API pumice_status pumice_next_event(pumice_engine* engine, pumice_event* event);

// ---- what an engine did

typedef struct pumice_stats {
  size_t struct_size;
  // As of the last poll:
  uint64_t steps;
  uint64_t failed_steps;
  uint64_t prompt_tokens;  // of requests that began
  uint64_t cached_tokens;  // of these, not computed
  uint64_t generated_tokens;
  uint64_t preemptions;
  // What would cause a hitch: kernels compiled and device memory allocated since all kernels were
  // ready, counted. 0, unless another engine was made or a model loaded on the device.
  uint64_t kernels_compiled_after_prewarm;
  uint64_t allocations_after_prewarm;
  // Now:
  uint32_t open_requests;  // with a last event to come
  uint32_t open_sessions;
  uint64_t device_bytes;  // allocated on the device, by all its models and engines
  uint64_t weight_bytes;  // of these
  uint64_t kv_bytes;
  uint64_t kernels;  // compiled on the device
  // As of the last poll, or before that of the creation of the engine:
  uint64_t memory_budget_bytes;   // of pumice_set_memory_budget; 0: none
  pumice_bool memory_budget_met;  // 1 without one
  uint32_t n_overcommitted;       // times the driver was found to grant less than is used
  // What the driver lets this process use, asked once a second at most; 0, like the next: it does
  // not say.
  uint64_t driver_budget_bytes;
  uint64_t driver_used_bytes;    // by this process
  uint64_t budgeted_bytes;       // of the device's own memory, now: what a budget counts
  uint64_t weight_bytes_beside;  // in memory beside that
  uint32_t n_lost_devices;
  pumice_bool is_lost;       // and no device has been opened in its place yet
  uint64_t drafted_tokens;   // as of the last poll: guessed and verified
  uint64_t accepted_tokens;  // of these
  // As of the last poll: requests that have a place in steps, and those that wait for one.
  uint32_t running_requests;
  uint32_t waiting_requests;
} pumice_stats;

// From any thread.
PUMICE_API pumice_status pumice_get_stats(pumice_engine* engine, pumice_stats* stats);

typedef int32_t pumice_latency_kind;
enum {
  PUMICE_LATENCY_QUEUE = 0,           // until a request's first step, of those that ended
  PUMICE_LATENCY_FIRST_TOKEN = 1,     // from submission
  PUMICE_LATENCY_TOKEN_INTERVAL = 2,  // between a request's tokens, as polls found them
  PUMICE_LATENCY_TOTAL = 3            // from submission to the end, whatever that was
};

// How long that took in all requests since the engine was created; percentiles within 2 %.
typedef struct pumice_latency {
  size_t struct_size;
  uint64_t count;
  uint64_t sum_us;
  uint64_t p50_us;
  uint64_t p90_us;
  uint64_t p99_us;
  uint64_t max_us;
} pumice_latency;

// From any thread.
PUMICE_API pumice_status pumice_get_latency(pumice_engine* engine, pumice_latency_kind kind,
                                            pumice_latency* latency);

#ifdef __cplusplus
}
#endif
#endif  // PUMICE_PUMICE_H
