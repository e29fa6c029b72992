// Written by tools/bindings.py from pumice.h: structs, constants and functions as C has them.
using System;
using System.Runtime.InteropServices;

// Members are set by the library.
#pragma warning disable 0649
namespace Pumice {

public enum Status {
  Ok = 0,
  InvalidArgument = 1,
  NoDevice = 2,
  BadFile = 3,
  DoesNotFit = 4,
  SelfTestFailed = 5,
  DeviceLost = 6,
  Cancelled = 7,
  Internal = 8,
  OutOfMemory = 9,
  NotFound = 10,
  Busy = 11,
  TooSmall = 12,
}

public enum LogLevel {
  None = 0,
  Debug = 1,
  Info = 2,
  Warning = 3,
  Error = 4,
}

public enum LoadPhase {
  Reading = 0,
  Weights = 1,
  Ended = 2,
}

public enum ConstraintKind {
  JsonSchema = 0,
  Grammar = 1,
  Regex = 2,
}

public enum Overflow {
  Stop = 0,
  Shift = 1,
  Truncate = 2,
}

public enum Mode {
  Fast = 0,
  Graphics = 1,
  Background = 2,
}

public enum ServiceClass {
  Normal = 0,
  Interactive = 1,
  Batch = 2,
}

public enum Speculation {
  Off = 0,
  Lookup = 1,
  Auto = 2,
  Draft = 3,
  Mtp = 4,
}

public enum EventKind {
  None = 0,
  Progress = 1,
  Token = 2,
  Finished = 3,
  BudgetMet = 4,
  DeviceLost = 5,
  DeviceNew = 6,
  Score = 7,
}

public enum EndReason {
  None = 0,
  Length = 1,
  Stop = 2,
  StopText = 3,
  Window = 4,
  Cancelled = 5,
  Timeout = 6,
  Error = 7,
}

public enum PartKind {
  Reasoning = 1,
  Text = 2,
  CallBegun = 3,
  Arguments = 4,
  CallEnded = 5,
}

public enum LatencyKind {
  Queue = 0,
  FirstToken = 1,
  TokenInterval = 2,
  Total = 3,
}

internal sealed class DeviceHandle : SafeHandle {
  public DeviceHandle() : base(IntPtr.Zero, true) {}
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
  protected override bool ReleaseHandle() {
    Abi.pumice_device_close(handle);
    return true;
  }
}

internal sealed class ModelHandle : SafeHandle {
  public ModelHandle() : base(IntPtr.Zero, true) {}
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
  protected override bool ReleaseHandle() {
    Abi.pumice_model_close(handle);
    return true;
  }
}

internal sealed class EngineHandle : SafeHandle {
  public EngineHandle() : base(IntPtr.Zero, true) {}
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
  protected override bool ReleaseHandle() {
    Abi.pumice_engine_close(handle);
    return true;
  }
}

internal sealed class ConstraintHandle : SafeHandle {
  public ConstraintHandle() : base(IntPtr.Zero, true) {}
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
  protected override bool ReleaseHandle() {
    Abi.pumice_constraint_close(handle);
    return true;
  }
}

internal sealed class LoadingHandle : SafeHandle {
  public LoadingHandle() : base(IntPtr.Zero, true) {}
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
  protected override bool ReleaseHandle() {
    Abi.pumice_loading_close(handle);
    return true;
  }
}

internal sealed class EmbedderHandle : SafeHandle {
  public EmbedderHandle() : base(IntPtr.Zero, true) {}
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
  protected override bool ReleaseHandle() {
    Abi.pumice_embedder_close(handle);
    return true;
  }
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_string {
  public IntPtr data;
  public UIntPtr length;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_device_info {
  public UIntPtr struct_size;
  [MarshalAs(UnmanagedType.ByValArray, SizeConst = 256)]
  public byte[] name;
  [MarshalAs(UnmanagedType.ByValArray, SizeConst = 256)]
  public byte[] driver;
  [MarshalAs(UnmanagedType.ByValArray, SizeConst = 40)]
  public byte[] uuid;
  public ulong memory_bytes;
  public uint is_cpu;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_device_options {
  public UIntPtr struct_size;
  public pumice_string selector;
  public pumice_string cache_directory;
  public ulong memory_bytes;
  public uint validation;
  public uint debug_log;
  public uint low_priority;
  public ulong hang_timeout_us;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_log {
  public UIntPtr struct_size;
  public LogLevel level;
  public uint n_dropped;
  public pumice_string line;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_self_test_options {
  public UIntPtr struct_size;
  public pumice_string operations;
  public ulong timeout_us;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_self_test_result {
  public UIntPtr struct_size;
  public uint n_cases;
  public uint n_errors;
  public uint n_passed;
  public uint n_failed;
  public uint n_not_supported;
  public uint n_not_run;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_files {
  public UIntPtr struct_size;
  public IntPtr user;
  public IntPtr open;
  public IntPtr read_at;
  public IntPtr close;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_adapter {
  public pumice_string name;
  public pumice_string path;
  public IntPtr memory;
  public ulong memory_bytes;
  public float scale;
  public uint unused;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_model_options {
  public UIntPtr struct_size;
  public pumice_string path;
  public IntPtr engine;
  public pumice_string chat_template;
  public pumice_string answer_format;
  public IntPtr files;
  public IntPtr memory;
  public ulong memory_bytes;
  public uint embeds;
  public uint unused;
  public pumice_string pooling;
  public IntPtr adapters;
  public UIntPtr n_adapters;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_model_info {
  public UIntPtr struct_size;
  [MarshalAs(UnmanagedType.ByValArray, SizeConst = 256)]
  public byte[] name;
  [MarshalAs(UnmanagedType.ByValArray, SizeConst = 64)]
  public byte[] architecture;
  public ulong resident_bytes;
  public uint n_vocabulary;
  public uint n_layers;
  public uint trained_context_tokens;
  public uint has_chat_template;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_load_progress {
  public UIntPtr struct_size;
  public LoadPhase phase;
  public uint unused;
  public ulong done_bytes;
  public ulong total_bytes;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_memory_estimate {
  public UIntPtr struct_size;
  public uint fits;
  public uint context_tokens;
  public uint most_context_tokens;
  public uint trained_context_tokens;
  public ulong total_bytes;
  public ulong weight_bytes;
  public ulong kv_bytes;
  public ulong activation_bytes;
  public ulong weight_bytes_beside;
  public ulong free_bytes;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_constraint_options {
  public UIntPtr struct_size;
  public ConstraintKind kind;
  public pumice_string text;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_allocator {
  public UIntPtr struct_size;
  public IntPtr user;
  public IntPtr allocate;
  public IntPtr free;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_engine_options {
  public UIntPtr struct_size;
  public uint context_tokens;
  public uint n_sequences;
  public ulong kv_tokens;
  public uint token_budget;
  public uint chunk_tokens;
  public uint token_interval_us;
  public Overflow overflow;
  public pumice_string kv_type;
  public pumice_string arithmetic;
  public ulong cache_host_bytes;
  public uint invariant;
  public uint no_prefix_cache;
  public uint prewarm_later;
  public IntPtr allocator;
  public ulong aging_us;
  public uint reserved_interactive_tokens;
  public uint reserved_normal_tokens;
  public uint reserved_batch_tokens;
  public uint mtp;
  public pumice_string draft_model;
  public pumice_string prefix_store;
  public ulong prefix_store_bytes;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_embedder_options {
  public UIntPtr struct_size;
  public uint text_tokens;
  public uint step_tokens;
  public pumice_string kv_type;
  public pumice_string arithmetic;
  public uint invariant;
  public uint not_normalized;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_embedder_info {
  public UIntPtr struct_size;
  public uint width;
  public uint text_tokens;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_logit_bias {
  public uint token;
  public float bias;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_sampling {
  public UIntPtr struct_size;
  public float temperature;
  public uint top_k;
  public float top_p;
  public float min_p;
  public float repeat_penalty;
  public float frequency_penalty;
  public float presence_penalty;
  public ulong seed;
  public IntPtr logit_biases;
  public UIntPtr n_logit_biases;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_session_options {
  public UIntPtr struct_size;
  public IntPtr sampling;
  public ServiceClass service_class;
  public int priority;
  public pumice_string salt;
  public float max_tokens_per_second;
  public uint sentences;
  public pumice_string adapter;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_restore_options {
  public UIntPtr struct_size;
  public uint tokens_only;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_message {
  public pumice_string role;
  public pumice_string content;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_request_options {
  public UIntPtr struct_size;
  public pumice_string text;
  public IntPtr tokens;
  public UIntPtr n_tokens;
  public IntPtr messages;
  public UIntPtr n_messages;
  public uint special;
  public uint max_new_tokens;
  public IntPtr sampling;
  public IntPtr stops;
  public UIntPtr n_stops;
  public ulong timeout_us;
  public uint ignore_end;
  public uint unused;
  public uint log_probs;
  public uint n_top_log_probs;
  public ulong shares_prompt_with;
  public uint scores;
  public Speculation speculation;
  public uint max_draft_tokens;
  public IntPtr constraint;
  public uint parts;
  public uint unused2;
  public pumice_string messages_json;
  public pumice_string tools_json;
  public pumice_string tool_choice;
  public pumice_string template_variables_json;
  public IntPtr alone;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_answer_part {
  public PartKind kind;
  public uint call;
  public pumice_string text;
  public pumice_string id;
  public uint complete;
  public uint unused;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_token_log_prob {
  public uint token;
  public float log_prob;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_event {
  public UIntPtr struct_size;
  public EventKind kind;
  public Status status;
  public ulong request;
  public ulong session;
  public pumice_string text;
  public uint has_token;
  public uint token;
  public uint computed_tokens;
  public EndReason end_reason;
  public pumice_string message;
  public uint prompt_tokens;
  public uint cached_tokens;
  public uint generated_tokens;
  public uint forgotten_questions;
  public ulong first_token_us;
  public ulong total_us;
  public float log_prob;
  public IntPtr top_log_probs;
  public UIntPtr n_top_log_probs;
  public uint drafted_tokens;
  public uint accepted_tokens;
  public IntPtr parts;
  public UIntPtr n_parts;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_stats {
  public UIntPtr struct_size;
  public ulong steps;
  public ulong failed_steps;
  public ulong prompt_tokens;
  public ulong cached_tokens;
  public ulong generated_tokens;
  public ulong preemptions;
  public ulong kernels_compiled_after_prewarm;
  public ulong allocations_after_prewarm;
  public uint open_requests;
  public uint open_sessions;
  public ulong device_bytes;
  public ulong weight_bytes;
  public ulong kv_bytes;
  public ulong kernels;
  public ulong memory_budget_bytes;
  public uint memory_budget_met;
  public uint n_overcommitted;
  public ulong driver_budget_bytes;
  public ulong driver_used_bytes;
  public ulong budgeted_bytes;
  public ulong weight_bytes_beside;
  public uint n_lost_devices;
  public uint is_lost;
  public ulong drafted_tokens;
  public ulong accepted_tokens;
  public uint running_requests;
  public uint waiting_requests;
}

[StructLayout(LayoutKind.Sequential)]
internal struct pumice_latency {
  public UIntPtr struct_size;
  public ulong count;
  public ulong sum_us;
  public ulong p50_us;
  public ulong p90_us;
  public ulong p99_us;
  public ulong max_us;
}

internal static class Abi {
  private const string Library = "pumice";

  internal const int PUMICE_VERSION_MAJOR = 0;
  internal const int PUMICE_VERSION_MINOR = 1;
  internal const int PUMICE_VERSION_PATCH = 0;
  internal const ulong PUMICE_NO_LIMIT = ulong.MaxValue;

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern IntPtr pumice_version();

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern IntPtr pumice_status_name(Status status);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern IntPtr pumice_last_error();

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_device_list(
      [In, Out] pumice_device_info[] devices, UIntPtr capacity, out UIntPtr n_devices);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_device_open(ref pumice_device_options options, out DeviceHandle device);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_device_get_info(DeviceHandle device, ref pumice_device_info info);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern void pumice_device_close(IntPtr device);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_next_log(DeviceHandle device, ref pumice_log log);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_self_test(
      DeviceHandle device, ref pumice_self_test_options options, ref pumice_self_test_result result);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_model_load(
      DeviceHandle device, ref pumice_model_options options, out ModelHandle model);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_model_load_begin(
      DeviceHandle device, ref pumice_model_options options, out LoadingHandle loading);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_loading_wait(
      LoadingHandle loading, ulong microseconds, ref pumice_load_progress progress);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_loading_cancel(LoadingHandle loading);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_loading_take(LoadingHandle loading, out ModelHandle model);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern void pumice_loading_close(IntPtr loading);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_model_get_info(ModelHandle model, ref pumice_model_info info);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern void pumice_model_close(IntPtr model);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_model_estimate(
      DeviceHandle device, ref pumice_model_options options, ref pumice_memory_estimate estimate);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_tokenize(
      ModelHandle model, pumice_string text, uint special, [In, Out] uint[] tokens, UIntPtr capacity, out UIntPtr n_tokens);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_detokenize(
      ModelHandle model, [In, Out] uint[] tokens, UIntPtr n_tokens, [In, Out] byte[] text, UIntPtr capacity, out UIntPtr n_bytes);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_constraint_compile(
      ModelHandle model, ref pumice_constraint_options options, out ConstraintHandle constraint);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern void pumice_constraint_close(IntPtr constraint);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_engine_create(
      ModelHandle model, ref pumice_engine_options options, out EngineHandle engine);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern void pumice_engine_close(IntPtr engine);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_prewarm(EngineHandle engine, ulong microseconds, out uint done, out uint total);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_set_mode(EngineHandle engine, Mode mode);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_set_memory_budget(EngineHandle engine, ulong bytes);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_embedder_create(
      ModelHandle model, ref pumice_embedder_options options, out EmbedderHandle embedder);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_embedder_get_info(EmbedderHandle embedder, ref pumice_embedder_info info);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_embed(
      EmbedderHandle embedder, [In, Out] pumice_string[] texts, UIntPtr n_texts, [In, Out] float[] vectors, UIntPtr capacity, out UIntPtr n_floats);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern void pumice_embedder_close(IntPtr embedder);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_open(
      EngineHandle engine, ref pumice_session_options options, out ulong session);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_close(EngineHandle engine, ulong session);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_tokens(
      EngineHandle engine, ulong session, [In, Out] uint[] tokens, UIntPtr capacity, out UIntPtr n_tokens);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_turns(EngineHandle engine, ulong session, out uint n_turns);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_rollback(
      EngineHandle engine, ulong session, uint n_turns, uint keep_question);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_save(
      EngineHandle engine, ulong session, out IntPtr bytes, out UIntPtr n_bytes);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_session_restore(
      EngineHandle engine, [In, Out] byte[] bytes, UIntPtr n_bytes, ref pumice_restore_options options, out ulong session);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_submit(
      EngineHandle engine, ulong session, ref pumice_request_options options, out ulong request);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_cancel(EngineHandle engine, ulong request);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_poll(EngineHandle engine, ulong microseconds);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_wait(EngineHandle engine, ulong microseconds);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_next_event(EngineHandle engine, ref pumice_event @event);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_get_stats(EngineHandle engine, ref pumice_stats stats);

  [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
  internal static extern Status pumice_get_latency(EngineHandle engine, LatencyKind kind, ref pumice_latency latency);
}
}
