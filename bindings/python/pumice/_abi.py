"""Written by tools/bindings.py from pumice.h: structs, constants and functions as C has them."""

# pylint: disable=invalid-name,too-few-public-methods,missing-class-docstring
from ctypes import (POINTER, Structure, c_char, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_uint64,
                    c_void_p)

PUMICE_VERSION_MAJOR = 0
PUMICE_VERSION_MINOR = 1
PUMICE_VERSION_PATCH = 0
PUMICE_NUL = c_size_t(-1).value
PUMICE_NO_LIMIT = c_uint64(-1).value

# pumice_status
PUMICE_OK = 0
PUMICE_INVALID_ARGUMENT = 1
PUMICE_NO_DEVICE = 2
PUMICE_BAD_FILE = 3
PUMICE_DOES_NOT_FIT = 4
PUMICE_SELF_TEST_FAILED = 5
PUMICE_DEVICE_LOST = 6
PUMICE_CANCELLED = 7
PUMICE_INTERNAL = 8
PUMICE_OUT_OF_MEMORY = 9
PUMICE_NOT_FOUND = 10
PUMICE_BUSY = 11
PUMICE_TOO_SMALL = 12

# pumice_log_level
PUMICE_LOG_NONE = 0
PUMICE_LOG_DEBUG = 1
PUMICE_LOG_INFO = 2
PUMICE_LOG_WARNING = 3
PUMICE_LOG_ERROR = 4

# pumice_load_phase
PUMICE_LOAD_READING = 0
PUMICE_LOAD_WEIGHTS = 1
PUMICE_LOAD_ENDED = 2

# pumice_constraint_kind
PUMICE_CONSTRAINT_JSON_SCHEMA = 0
PUMICE_CONSTRAINT_GRAMMAR = 1
PUMICE_CONSTRAINT_REGEX = 2

# pumice_overflow
PUMICE_OVERFLOW_STOP = 0
PUMICE_OVERFLOW_SHIFT = 1
PUMICE_OVERFLOW_TRUNCATE = 2

# pumice_mode
PUMICE_MODE_FAST = 0
PUMICE_MODE_GRAPHICS = 1
PUMICE_MODE_BACKGROUND = 2

# pumice_service_class
PUMICE_SERVICE_NORMAL = 0
PUMICE_SERVICE_INTERACTIVE = 1
PUMICE_SERVICE_BATCH = 2

# pumice_speculation
PUMICE_SPECULATION_OFF = 0
PUMICE_SPECULATION_LOOKUP = 1
PUMICE_SPECULATION_AUTO = 2
PUMICE_SPECULATION_DRAFT = 3
PUMICE_SPECULATION_MTP = 4

# pumice_event_kind
PUMICE_EVENT_NONE = 0
PUMICE_EVENT_PROGRESS = 1
PUMICE_EVENT_TOKEN = 2
PUMICE_EVENT_FINISHED = 3
PUMICE_EVENT_BUDGET_MET = 4
PUMICE_EVENT_DEVICE_LOST = 5
PUMICE_EVENT_DEVICE_NEW = 6
PUMICE_EVENT_SCORE = 7

# pumice_end_reason
PUMICE_END_NONE = 0
PUMICE_END_LENGTH = 1
PUMICE_END_STOP = 2
PUMICE_END_STOP_TEXT = 3
PUMICE_END_WINDOW = 4
PUMICE_END_CANCELLED = 5
PUMICE_END_TIMEOUT = 6
PUMICE_END_ERROR = 7

# pumice_part_kind
PUMICE_PART_REASONING = 1
PUMICE_PART_TEXT = 2
PUMICE_PART_CALL_BEGUN = 3
PUMICE_PART_ARGUMENTS = 4
PUMICE_PART_CALL_ENDED = 5

# pumice_latency_kind
PUMICE_LATENCY_QUEUE = 0
PUMICE_LATENCY_FIRST_TOKEN = 1
PUMICE_LATENCY_TOKEN_INTERVAL = 2
PUMICE_LATENCY_TOTAL = 3


class pumice_string(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("length", c_size_t),
    ]


class pumice_device_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 256),
        ("driver", c_char * 256),
        ("uuid", c_char * 40),
        ("memory_bytes", c_uint64),
        ("is_cpu", c_uint32),
    ]


class pumice_device_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("selector", pumice_string),
        ("cache_directory", pumice_string),
        ("memory_bytes", c_uint64),
        ("validation", c_uint32),
        ("debug_log", c_uint32),
        ("low_priority", c_uint32),
        ("hang_timeout_us", c_uint64),
    ]


class pumice_log(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("level", c_int32),
        ("n_dropped", c_uint32),
        ("line", pumice_string),
    ]


class pumice_self_test_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("operations", pumice_string),
        ("timeout_us", c_uint64),
    ]


class pumice_self_test_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_cases", c_uint32),
        ("n_errors", c_uint32),
        ("n_passed", c_uint32),
        ("n_failed", c_uint32),
        ("n_not_supported", c_uint32),
        ("n_not_run", c_uint32),
    ]


class pumice_files(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user", c_void_p),
        ("open", c_void_p),
        ("read_at", c_void_p),
        ("close", c_void_p),
    ]


class pumice_adapter(Structure):
    _fields_ = [
        ("name", pumice_string),
        ("path", pumice_string),
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("scale", c_float),
        ("unused", c_uint32),
    ]


class pumice_model_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 256),
        ("architecture", c_char * 64),
        ("resident_bytes", c_uint64),
        ("n_vocabulary", c_uint32),
        ("n_layers", c_uint32),
        ("trained_context_tokens", c_uint32),
        ("has_chat_template", c_uint32),
    ]


class pumice_load_progress(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("phase", c_int32),
        ("unused", c_uint32),
        ("done_bytes", c_uint64),
        ("total_bytes", c_uint64),
    ]


class pumice_memory_estimate(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("fits", c_uint32),
        ("context_tokens", c_uint32),
        ("most_context_tokens", c_uint32),
        ("trained_context_tokens", c_uint32),
        ("total_bytes", c_uint64),
        ("weight_bytes", c_uint64),
        ("kv_bytes", c_uint64),
        ("activation_bytes", c_uint64),
        ("weight_bytes_beside", c_uint64),
        ("free_bytes", c_uint64),
    ]


class pumice_constraint_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("text", pumice_string),
    ]


class pumice_allocator(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user", c_void_p),
        ("allocate", c_void_p),
        ("free", c_void_p),
    ]


class pumice_engine_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context_tokens", c_uint32),
        ("n_sequences", c_uint32),
        ("kv_tokens", c_uint64),
        ("token_budget", c_uint32),
        ("chunk_tokens", c_uint32),
        ("token_interval_us", c_uint32),
        ("overflow", c_int32),
        ("kv_type", pumice_string),
        ("arithmetic", pumice_string),
        ("cache_host_bytes", c_uint64),
        ("invariant", c_uint32),
        ("no_prefix_cache", c_uint32),
        ("prewarm_later", c_uint32),
        ("allocator", POINTER(pumice_allocator)),
        ("aging_us", c_uint64),
        ("reserved_interactive_tokens", c_uint32),
        ("reserved_normal_tokens", c_uint32),
        ("reserved_batch_tokens", c_uint32),
        ("mtp", c_uint32),
        ("draft_model", pumice_string),
        ("prefix_store", pumice_string),
        ("prefix_store_bytes", c_uint64),
    ]


class pumice_model_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("path", pumice_string),
        ("engine", POINTER(pumice_engine_options)),
        ("chat_template", pumice_string),
        ("answer_format", pumice_string),
        ("files", POINTER(pumice_files)),
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("embeds", c_uint32),
        ("unused", c_uint32),
        ("pooling", pumice_string),
        ("adapters", POINTER(pumice_adapter)),
        ("n_adapters", c_size_t),
    ]


class pumice_embedder_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("text_tokens", c_uint32),
        ("step_tokens", c_uint32),
        ("kv_type", pumice_string),
        ("arithmetic", pumice_string),
        ("invariant", c_uint32),
        ("not_normalized", c_uint32),
    ]


class pumice_embedder_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("width", c_uint32),
        ("text_tokens", c_uint32),
    ]


class pumice_logit_bias(Structure):
    _fields_ = [
        ("token", c_uint32),
        ("bias", c_float),
    ]


class pumice_sampling(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("temperature", c_float),
        ("top_k", c_uint32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repeat_penalty", c_float),
        ("frequency_penalty", c_float),
        ("presence_penalty", c_float),
        ("seed", c_uint64),
        ("logit_biases", POINTER(pumice_logit_bias)),
        ("n_logit_biases", c_size_t),
    ]


class pumice_session_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("sampling", POINTER(pumice_sampling)),
        ("service_class", c_int32),
        ("priority", c_int32),
        ("salt", pumice_string),
        ("max_tokens_per_second", c_float),
        ("sentences", c_uint32),
        ("adapter", pumice_string),
    ]


class pumice_restore_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tokens_only", c_uint32),
    ]


class pumice_message(Structure):
    _fields_ = [
        ("role", pumice_string),
        ("content", pumice_string),
    ]


class pumice_request_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("text", pumice_string),
        ("tokens", POINTER(c_uint32)),
        ("n_tokens", c_size_t),
        ("messages", POINTER(pumice_message)),
        ("n_messages", c_size_t),
        ("special", c_uint32),
        ("max_new_tokens", c_uint32),
        ("sampling", POINTER(pumice_sampling)),
        ("stops", POINTER(pumice_string)),
        ("n_stops", c_size_t),
        ("timeout_us", c_uint64),
        ("ignore_end", c_uint32),
        ("unused", c_uint32),
        ("log_probs", c_uint32),
        ("n_top_log_probs", c_uint32),
        ("shares_prompt_with", c_uint64),
        ("scores", c_uint32),
        ("speculation", c_int32),
        ("max_draft_tokens", c_uint32),
        ("constraint", c_void_p),
        ("parts", c_uint32),
        ("unused2", c_uint32),
        ("messages_json", pumice_string),
        ("tools_json", pumice_string),
        ("tool_choice", pumice_string),
        ("template_variables_json", pumice_string),
        ("alone", POINTER(pumice_session_options)),
    ]


class pumice_answer_part(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("call", c_uint32),
        ("text", pumice_string),
        ("id", pumice_string),
        ("complete", c_uint32),
        ("unused", c_uint32),
    ]


class pumice_token_log_prob(Structure):
    _fields_ = [
        ("token", c_uint32),
        ("log_prob", c_float),
    ]


class pumice_event(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("status", c_int32),
        ("request", c_uint64),
        ("session", c_uint64),
        ("text", pumice_string),
        ("has_token", c_uint32),
        ("token", c_uint32),
        ("computed_tokens", c_uint32),
        ("end_reason", c_int32),
        ("message", pumice_string),
        ("prompt_tokens", c_uint32),
        ("cached_tokens", c_uint32),
        ("generated_tokens", c_uint32),
        ("forgotten_questions", c_uint32),
        ("first_token_us", c_uint64),
        ("total_us", c_uint64),
        ("log_prob", c_float),
        ("top_log_probs", POINTER(pumice_token_log_prob)),
        ("n_top_log_probs", c_size_t),
        ("drafted_tokens", c_uint32),
        ("accepted_tokens", c_uint32),
        ("parts", POINTER(pumice_answer_part)),
        ("n_parts", c_size_t),
    ]


class pumice_stats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("steps", c_uint64),
        ("failed_steps", c_uint64),
        ("prompt_tokens", c_uint64),
        ("cached_tokens", c_uint64),
        ("generated_tokens", c_uint64),
        ("preemptions", c_uint64),
        ("kernels_compiled_after_prewarm", c_uint64),
        ("allocations_after_prewarm", c_uint64),
        ("open_requests", c_uint32),
        ("open_sessions", c_uint32),
        ("device_bytes", c_uint64),
        ("weight_bytes", c_uint64),
        ("kv_bytes", c_uint64),
        ("kernels", c_uint64),
        ("memory_budget_bytes", c_uint64),
        ("memory_budget_met", c_uint32),
        ("n_overcommitted", c_uint32),
        ("driver_budget_bytes", c_uint64),
        ("driver_used_bytes", c_uint64),
        ("budgeted_bytes", c_uint64),
        ("weight_bytes_beside", c_uint64),
        ("n_lost_devices", c_uint32),
        ("is_lost", c_uint32),
        ("drafted_tokens", c_uint64),
        ("accepted_tokens", c_uint64),
        ("running_requests", c_uint32),
        ("waiting_requests", c_uint32),
    ]


class pumice_latency(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("count", c_uint64),
        ("sum_us", c_uint64),
        ("p50_us", c_uint64),
        ("p90_us", c_uint64),
        ("p99_us", c_uint64),
        ("max_us", c_uint64),
    ]


# Name → (result, parameters).
FUNCTIONS = {
    "pumice_version": (c_char_p, []),
    "pumice_status_name": (c_char_p, [c_int32]),
    "pumice_last_error": (c_char_p, []),
    "pumice_device_list": (c_int32, [POINTER(pumice_device_info), c_size_t, POINTER(c_size_t)]),
    "pumice_device_open": (c_int32, [POINTER(pumice_device_options), POINTER(c_void_p)]),
    "pumice_device_get_info": (c_int32, [c_void_p, POINTER(pumice_device_info)]),
    "pumice_device_close": (None, [c_void_p]),
    "pumice_next_log": (c_int32, [c_void_p, POINTER(pumice_log)]),
    "pumice_self_test": (c_int32, [c_void_p, POINTER(pumice_self_test_options), POINTER(pumice_self_test_result)]),
    "pumice_model_load": (c_int32, [c_void_p, POINTER(pumice_model_options), POINTER(c_void_p)]),
    "pumice_model_load_begin": (c_int32, [c_void_p, POINTER(pumice_model_options), POINTER(c_void_p)]),
    "pumice_loading_wait": (c_int32, [c_void_p, c_uint64, POINTER(pumice_load_progress)]),
    "pumice_loading_cancel": (c_int32, [c_void_p]),
    "pumice_loading_take": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "pumice_loading_close": (None, [c_void_p]),
    "pumice_model_get_info": (c_int32, [c_void_p, POINTER(pumice_model_info)]),
    "pumice_model_close": (None, [c_void_p]),
    "pumice_model_estimate": (c_int32, [c_void_p, POINTER(pumice_model_options), POINTER(pumice_memory_estimate)]),
    "pumice_tokenize": (c_int32, [c_void_p, pumice_string, c_uint32, POINTER(c_uint32), c_size_t, POINTER(c_size_t)]),
    "pumice_detokenize": (c_int32, [c_void_p, POINTER(c_uint32), c_size_t, c_char_p, c_size_t, POINTER(c_size_t)]),
    "pumice_constraint_compile": (c_int32, [c_void_p, POINTER(pumice_constraint_options), POINTER(c_void_p)]),
    "pumice_constraint_close": (None, [c_void_p]),
    "pumice_engine_create": (c_int32, [c_void_p, POINTER(pumice_engine_options), POINTER(c_void_p)]),
    "pumice_engine_close": (None, [c_void_p]),
    "pumice_prewarm": (c_int32, [c_void_p, c_uint64, POINTER(c_uint32), POINTER(c_uint32)]),
    "pumice_set_mode": (c_int32, [c_void_p, c_int32]),
    "pumice_set_memory_budget": (c_int32, [c_void_p, c_uint64]),
    "pumice_embedder_create": (c_int32, [c_void_p, POINTER(pumice_embedder_options), POINTER(c_void_p)]),
    "pumice_embedder_get_info": (c_int32, [c_void_p, POINTER(pumice_embedder_info)]),
    "pumice_embed":
        (c_int32,
         [c_void_p, POINTER(pumice_string), c_size_t, POINTER(c_float), c_size_t, POINTER(c_size_t)]),
    "pumice_embedder_close": (None, [c_void_p]),
    "pumice_session_open": (c_int32, [c_void_p, POINTER(pumice_session_options), POINTER(c_uint64)]),
    "pumice_session_close": (c_int32, [c_void_p, c_uint64]),
    "pumice_session_tokens": (c_int32, [c_void_p, c_uint64, POINTER(c_uint32), c_size_t, POINTER(c_size_t)]),
    "pumice_session_turns": (c_int32, [c_void_p, c_uint64, POINTER(c_uint32)]),
    "pumice_session_rollback": (c_int32, [c_void_p, c_uint64, c_uint32, c_uint32]),
    "pumice_session_save": (c_int32, [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_size_t)]),
    "pumice_session_restore":
        (c_int32,
         [c_void_p, c_void_p, c_size_t, POINTER(pumice_restore_options), POINTER(c_uint64)]),
    "pumice_submit": (c_int32, [c_void_p, c_uint64, POINTER(pumice_request_options), POINTER(c_uint64)]),
    "pumice_cancel": (c_int32, [c_void_p, c_uint64]),
    "pumice_poll": (c_int32, [c_void_p, c_uint64]),
    "pumice_wait": (c_int32, [c_void_p, c_uint64]),
    "pumice_next_event": (c_int32, [c_void_p, POINTER(pumice_event)]),
    "pumice_get_stats": (c_int32, [c_void_p, POINTER(pumice_stats)]),
    "pumice_get_latency": (c_int32, [c_void_p, c_int32, POINTER(pumice_latency)]),
}
