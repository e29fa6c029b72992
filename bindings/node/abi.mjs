// Written by tools/bindings.py from pumice.h: structs, constants and functions as C has them.

import koffi from "koffi";

export const PUMICE_VERSION_MAJOR = 0;
export const PUMICE_VERSION_MINOR = 1;
export const PUMICE_VERSION_PATCH = 0;
export const PUMICE_NO_LIMIT = 2n ** 64n - 1n;

// Of each type: name → value.
export const ENUMS = {
  pumice_status: {
    ok: 0,
    invalid_argument: 1,
    no_device: 2,
    bad_file: 3,
    does_not_fit: 4,
    self_test_failed: 5,
    device_lost: 6,
    cancelled: 7,
    internal: 8,
    out_of_memory: 9,
    not_found: 10,
    busy: 11,
    too_small: 12,
  },
  pumice_log_level: {
    none: 0,
    debug: 1,
    info: 2,
    warning: 3,
    error: 4,
  },
  pumice_constraint_kind: {
    json_schema: 0,
    grammar: 1,
    regex: 2,
  },
  pumice_overflow: {
    stop: 0,
    shift: 1,
    truncate: 2,
  },
  pumice_mode: {
    fast: 0,
    graphics: 1,
    background: 2,
  },
  pumice_service_class: {
    normal: 0,
    interactive: 1,
    batch: 2,
  },
  pumice_speculation: {
    off: 0,
    lookup: 1,
    auto: 2,
  },
  pumice_event_kind: {
    none: 0,
    progress: 1,
    token: 2,
    finished: 3,
    budget_met: 4,
    device_lost: 5,
    device_new: 6,
    score: 7,
  },
  pumice_end_reason: {
    none: 0,
    length: 1,
    stop: 2,
    stop_text: 3,
    window: 4,
    cancelled: 5,
    timeout: 6,
    error: 7,
  },
};

koffi.opaque("pumice_device");
koffi.opaque("pumice_model");
koffi.opaque("pumice_engine");
koffi.opaque("pumice_constraint");
koffi.alias("pumice_session", "uint64_t");
koffi.alias("pumice_request", "uint64_t");
koffi.alias("pumice_bool", "uint32_t");
koffi.alias("pumice_status", "int32_t");
koffi.alias("pumice_log_level", "int32_t");
koffi.alias("pumice_constraint_kind", "int32_t");
koffi.alias("pumice_overflow", "int32_t");
koffi.alias("pumice_mode", "int32_t");
koffi.alias("pumice_service_class", "int32_t");
koffi.alias("pumice_speculation", "int32_t");
koffi.alias("pumice_event_kind", "int32_t");
koffi.alias("pumice_end_reason", "int32_t");

// Name → member → type.
export const STRUCTS = {
  pumice_string: {
    data: "void *",
    length: "size_t",
  },
  pumice_device_info: {
    struct_size: "size_t",
    name: koffi.array("char", 256),
    driver: koffi.array("char", 256),
    uuid: koffi.array("char", 40),
    memory_bytes: "uint64_t",
    is_cpu: "pumice_bool",
  },
  pumice_device_options: {
    struct_size: "size_t",
    selector: "pumice_string",
    cache_directory: "pumice_string",
    memory_bytes: "uint64_t",
    validation: "pumice_bool",
    debug_log: "pumice_bool",
    low_priority: "pumice_bool",
    hang_timeout_us: "uint64_t",
  },
  pumice_log: {
    struct_size: "size_t",
    level: "pumice_log_level",
    n_dropped: "uint32_t",
    line: "pumice_string",
  },
  pumice_model_info: {
    struct_size: "size_t",
    name: koffi.array("char", 256),
    architecture: koffi.array("char", 64),
    resident_bytes: "uint64_t",
    n_vocabulary: "uint32_t",
    n_layers: "uint32_t",
    trained_context_tokens: "uint32_t",
    has_chat_template: "pumice_bool",
  },
  pumice_constraint_options: {
    struct_size: "size_t",
    kind: "pumice_constraint_kind",
    text: "pumice_string",
  },
  pumice_allocator: {
    struct_size: "size_t",
    user: "void *",
    allocate: "void *",
    free: "void *",
  },
  pumice_engine_options: {
    struct_size: "size_t",
    context_tokens: "uint32_t",
    n_sequences: "uint32_t",
    kv_tokens: "uint64_t",
    token_budget: "uint32_t",
    chunk_tokens: "uint32_t",
    token_interval_us: "uint32_t",
    overflow: "pumice_overflow",
    kv_type: "pumice_string",
    arithmetic: "pumice_string",
    cache_host_bytes: "uint64_t",
    invariant: "pumice_bool",
    no_prefix_cache: "pumice_bool",
    prewarm_later: "pumice_bool",
    allocator: "pumice_allocator *",
  },
  pumice_model_options: {
    struct_size: "size_t",
    path: "pumice_string",
    engine: "pumice_engine_options *",
  },
  pumice_logit_bias: {
    token: "uint32_t",
    bias: "float",
  },
  pumice_sampling: {
    struct_size: "size_t",
    temperature: "float",
    top_k: "uint32_t",
    top_p: "float",
    min_p: "float",
    repeat_penalty: "float",
    frequency_penalty: "float",
    presence_penalty: "float",
    seed: "uint64_t",
    logit_biases: "pumice_logit_bias *",
    n_logit_biases: "size_t",
  },
  pumice_session_options: {
    struct_size: "size_t",
    sampling: "pumice_sampling *",
    service_class: "pumice_service_class",
    priority: "int32_t",
    salt: "pumice_string",
    max_tokens_per_second: "float",
    sentences: "pumice_bool",
  },
  pumice_restore_options: {
    struct_size: "size_t",
    tokens_only: "pumice_bool",
  },
  pumice_message: {
    role: "pumice_string",
    content: "pumice_string",
  },
  pumice_request_options: {
    struct_size: "size_t",
    text: "pumice_string",
    tokens: "uint32_t *",
    n_tokens: "size_t",
    messages: "pumice_message *",
    n_messages: "size_t",
    special: "pumice_bool",
    max_new_tokens: "uint32_t",
    sampling: "pumice_sampling *",
    stops: "pumice_string *",
    n_stops: "size_t",
    timeout_us: "uint64_t",
    ignore_end: "pumice_bool",
    unused: "uint32_t",
    log_probs: "pumice_bool",
    n_top_log_probs: "uint32_t",
    shares_prompt_with: "pumice_request",
    scores: "pumice_bool",
    speculation: "pumice_speculation",
    max_draft_tokens: "uint32_t",
    constraint: "pumice_constraint *",
  },
  pumice_token_log_prob: {
    token: "uint32_t",
    log_prob: "float",
  },
  pumice_event: {
    struct_size: "size_t",
    kind: "pumice_event_kind",
    status: "pumice_status",
    request: "pumice_request",
    session: "pumice_session",
    text: "pumice_string",
    has_token: "pumice_bool",
    token: "uint32_t",
    computed_tokens: "uint32_t",
    end_reason: "pumice_end_reason",
    message: "pumice_string",
    prompt_tokens: "uint32_t",
    cached_tokens: "uint32_t",
    generated_tokens: "uint32_t",
    forgotten_questions: "uint32_t",
    first_token_us: "uint64_t",
    total_us: "uint64_t",
    log_prob: "float",
    top_log_probs: "pumice_token_log_prob *",
    n_top_log_probs: "size_t",
    drafted_tokens: "uint32_t",
    accepted_tokens: "uint32_t",
  },
  pumice_stats: {
    struct_size: "size_t",
    steps: "uint64_t",
    failed_steps: "uint64_t",
    prompt_tokens: "uint64_t",
    cached_tokens: "uint64_t",
    generated_tokens: "uint64_t",
    preemptions: "uint64_t",
    kernels_compiled_after_prewarm: "uint64_t",
    allocations_after_prewarm: "uint64_t",
    open_requests: "uint32_t",
    open_sessions: "uint32_t",
    device_bytes: "uint64_t",
    weight_bytes: "uint64_t",
    kv_bytes: "uint64_t",
    kernels: "uint64_t",
    memory_budget_bytes: "uint64_t",
    memory_budget_met: "pumice_bool",
    n_overcommitted: "uint32_t",
    driver_budget_bytes: "uint64_t",
    driver_used_bytes: "uint64_t",
    budgeted_bytes: "uint64_t",
    weight_bytes_beside: "uint64_t",
    n_lost_devices: "uint32_t",
    is_lost: "pumice_bool",
    drafted_tokens: "uint64_t",
    accepted_tokens: "uint64_t",
  },
};
for (const [name, members] of Object.entries(STRUCTS)) koffi.struct(name, members);

export const FUNCTIONS = [
  "const char * pumice_version(void)",
  "const char * pumice_status_name(pumice_status status)",
  "const char * pumice_last_error(void)",
  "pumice_status pumice_device_list(_Inout_ pumice_device_info * devices, size_t capacity, _Out_ size_t * n_devices)",
  "pumice_status pumice_device_open(_Inout_ pumice_device_options * options, _Out_ pumice_device ** device)",
  "pumice_status pumice_device_get_info(pumice_device * device, _Inout_ pumice_device_info * info)",
  "void pumice_device_close(pumice_device * device)",
  "pumice_status pumice_next_log(pumice_device * device, _Inout_ pumice_log * log)",
  "pumice_status pumice_model_load(pumice_device * device, _Inout_ pumice_model_options * options, _Out_ pumice_model ** model)",
  "pumice_status pumice_model_get_info(pumice_model * model, _Inout_ pumice_model_info * info)",
  "void pumice_model_close(pumice_model * model)",
  "pumice_status pumice_tokenize(pumice_model * model, pumice_string text, pumice_bool special, void * tokens, size_t capacity, _Out_ size_t * n_tokens)",
  "pumice_status pumice_detokenize(pumice_model * model, void * tokens, size_t n_tokens, void * text, size_t capacity, _Out_ size_t * n_bytes)",
  "pumice_status pumice_constraint_compile(pumice_model * model, _Inout_ pumice_constraint_options * options, _Out_ pumice_constraint ** constraint)",
  "void pumice_constraint_close(pumice_constraint * constraint)",
  "pumice_status pumice_engine_create(pumice_model * model, _Inout_ pumice_engine_options * options, _Out_ pumice_engine ** engine)",
  "void pumice_engine_close(pumice_engine * engine)",
  "pumice_status pumice_prewarm(pumice_engine * engine, uint64_t microseconds, _Out_ uint32_t * done, _Out_ uint32_t * total)",
  "pumice_status pumice_set_mode(pumice_engine * engine, pumice_mode mode)",
  "pumice_status pumice_set_memory_budget(pumice_engine * engine, uint64_t bytes)",
  "pumice_status pumice_session_open(pumice_engine * engine, _Inout_ pumice_session_options * options, _Out_ pumice_session * session)",
  "pumice_status pumice_session_close(pumice_engine * engine, pumice_session session)",
  "pumice_status pumice_session_tokens(pumice_engine * engine, pumice_session session, void * tokens, size_t capacity, _Out_ size_t * n_tokens)",
  "pumice_status pumice_session_save(pumice_engine * engine, pumice_session session, _Out_ void ** bytes, _Out_ size_t * n_bytes)",
  "pumice_status pumice_session_restore(pumice_engine * engine, void * bytes, size_t n_bytes, _Inout_ pumice_restore_options * options, _Out_ pumice_session * session)",
  "pumice_status pumice_submit(pumice_engine * engine, pumice_session session, _Inout_ pumice_request_options * options, _Out_ pumice_request * request)",
  "pumice_status pumice_cancel(pumice_engine * engine, pumice_request request)",
  "pumice_status pumice_poll(pumice_engine * engine, uint64_t microseconds)",
  "pumice_status pumice_wait(pumice_engine * engine, uint64_t microseconds)",
  "pumice_status pumice_next_event(pumice_engine * engine, _Inout_ pumice_event * event)",
  "pumice_status pumice_get_stats(pumice_engine * engine, _Inout_ pumice_stats * stats)",
];
