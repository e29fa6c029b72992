using System;
using System.Collections.Generic;
using System.Linq;

namespace Pumice {

public static class Library {
  /// <summary>Of the library, "0.1.0".</summary>
  public static string Version { get { return Native.Text(Abi.pumice_version()); } }
}

public sealed class DeviceInfo {
  public string Name { get; private set; }
  public string Driver { get; private set; }
  public string Uuid { get; private set; }
  public ulong MemoryBytes { get; private set; }
  public bool IsCpu { get; private set; }

  internal DeviceInfo(pumice_device_info info) {
    Name = Native.Text(info.name);
    Driver = Native.Text(info.driver);
    Uuid = Native.Text(info.uuid);
    MemoryBytes = info.memory_bytes;
    IsCpu = info.is_cpu != 0;
  }
}

public sealed class DeviceOptions {
  /// <summary>An index, a UUID or a part of a name; null: the best device.</summary>
  public string Selector;
  /// <summary>A folder in which compiled kernels are kept from run to run; null: nothing is kept.</summary>
  public string CacheDirectory;
  public ulong MemoryBytes;
  public bool Validation, DebugLog, LowPriority;
  /// <summary>Without progress for so long, a device that has work counts as lost; zero: ten minutes.</summary>
  public TimeSpan HangTimeout;
}

public struct LogLine {
  public LogLevel Level;
  public string Text;
}

public sealed class Device : IDisposable {
  internal readonly DeviceHandle Handle;

  public Device(DeviceOptions options = null) {
    options = options ?? new DeviceOptions();
    using (var scope = new Scope()) {
      var given = new pumice_device_options {
        struct_size = Native.SizeOf<pumice_device_options>(), selector = scope.String(options.Selector),
        cache_directory = scope.String(options.CacheDirectory), memory_bytes = options.MemoryBytes,
        validation = Native.Bool(options.Validation), debug_log = Native.Bool(options.DebugLog),
        low_priority = Native.Bool(options.LowPriority), hang_timeout_us = Native.Microseconds(options.HangTimeout)
      };
      Native.Check(Abi.pumice_device_open(ref given, out Handle));
    }
  }

  /// <summary>The devices of this machine.</summary>
  public static IList<DeviceInfo> All() {
    var first = new pumice_device_info { struct_size = Native.SizeOf<pumice_device_info>() };
    return Array.ConvertAll(Native.Counted<pumice_device_info>(Abi.pumice_device_list, first), one => new DeviceInfo(one));
  }

  public DeviceInfo Info {
    get {
      var info = new pumice_device_info { struct_size = Native.SizeOf<pumice_device_info>() };
      Native.Check(Abi.pumice_device_get_info(Handle, ref info));
      return new DeviceInfo(info);
    }
  }

  /// <summary>What the device, its models and engines had to say since.</summary>
  public IEnumerable<LogLine> Log() {
    while (true) {
      var log = new pumice_log { struct_size = Native.SizeOf<pumice_log>() };
      Native.Check(Abi.pumice_next_log(Handle, ref log));
      if (log.level == LogLevel.None) yield break;
      yield return new LogLine { Level = log.level, Text = Native.Text(log.line) };
    }
  }

  /// <summary>What a GGUF file and an engine of ModelOptions.Engine would take of the device, before anything is
  /// loaded.</summary>
  public MemoryEstimate Estimate(string path, ModelOptions options = null) {
    using (var scope = new Scope()) {
      pumice_model_options given = (options ?? new ModelOptions()).Of(scope, path);
      var estimate = new pumice_memory_estimate { struct_size = Native.SizeOf<pumice_memory_estimate>() };
      Native.Check(Abi.pumice_model_estimate(Handle, ref given, ref estimate));
      return new MemoryEstimate(estimate);
    }
  }

  /// <summary>Whether the device computes right: runs the kernels of these operations, or of all. Throws
  /// Status.SelfTestFailed where one is left without a kernel that is right, and Status.Cancelled when the time was up. The
  /// verdict is kept in the cache folder, and holds for engines made from then on.</summary>
  public SelfTest RunSelfTest(IEnumerable<string> operations = null, TimeSpan timeout = default(TimeSpan)) {
    using (var scope = new Scope()) {
      var given = new pumice_self_test_options {
        struct_size = Native.SizeOf<pumice_self_test_options>(), timeout_us = Native.Microseconds(timeout),
        operations = scope.String(string.Join(",", operations ?? new string[0]))
      };
      var result = new pumice_self_test_result { struct_size = Native.SizeOf<pumice_self_test_result>() };
      Native.Check(Abi.pumice_self_test(Handle, ref given, ref result));
      return new SelfTest(result);
    }
  }

  /// <summary>A model of a GGUF file: seconds for a large one.</summary>
  public Model Load(string path, ModelOptions options = null) {
    using (var scope = new Scope()) {
      pumice_model_options given = (options ?? new ModelOptions()).Of(scope, path);
      ModelHandle model;
      Native.Check(Abi.pumice_model_load(Handle, ref given, out model));
      return new Model(model);
    }
  }

  /// <summary>The same, while this thread goes on.</summary>
  public Loading BeginLoad(string path, ModelOptions options = null) {
    using (var scope = new Scope()) {
      pumice_model_options given = (options ?? new ModelOptions()).Of(scope, path);
      LoadingHandle loading;
      Native.Check(Abi.pumice_model_load_begin(Handle, ref given, out loading));
      return new Loading(loading);
    }
  }

  public void Dispose() { Handle.Dispose(); }
}

/// <summary>Cases that ran, those of them that could not for reasons of their own, and kernels.</summary>
public sealed class SelfTest {
  public int Cases { get; private set; }
  public int Errors { get; private set; }
  public int Passed { get; private set; }
  public int Failed { get; private set; }
  public int NotSupported { get; private set; }
  public int NotRun { get; private set; }

  internal SelfTest(pumice_self_test_result result) {
    Cases = checked((int)result.n_cases);
    Errors = checked((int)result.n_errors);
    Passed = checked((int)result.n_passed);
    Failed = checked((int)result.n_failed);
    NotSupported = checked((int)result.n_not_supported);
    NotRun = checked((int)result.n_not_run);
  }
}

/// <summary>Bytes of the device's own memory.</summary>
public sealed class MemoryEstimate {
  /// <summary>Model and engine could be made now, part of the weights beside the device if need be.</summary>
  public bool Fits { get; private set; }
  public int ContextTokens { get; private set; }
  /// <summary>The longest context that would fit instead; 0: none does.</summary>
  public int MostContextTokens { get; private set; }
  public int TrainedContextTokens { get; private set; }
  public ulong TotalBytes { get; private set; }
  public ulong WeightBytes { get; private set; }
  public ulong KvBytes { get; private set; }
  public ulong ActivationBytes { get; private set; }
  /// <summary>Weights that would lie in other memory, which is slower.</summary>
  public ulong WeightBytesBeside { get; private set; }
  public ulong FreeBytes { get; private set; }

  internal MemoryEstimate(pumice_memory_estimate estimate) {
    Fits = estimate.fits != 0;
    ContextTokens = checked((int)estimate.context_tokens);
    MostContextTokens = checked((int)estimate.most_context_tokens);
    TrainedContextTokens = checked((int)estimate.trained_context_tokens);
    TotalBytes = estimate.total_bytes;
    WeightBytes = estimate.weight_bytes;
    KvBytes = estimate.kv_bytes;
    ActivationBytes = estimate.activation_bytes;
    WeightBytesBeside = estimate.weight_bytes_beside;
    FreeBytes = estimate.free_bytes;
  }
}

/// <summary>Bytes of the file's weights; a total of 0 is not known yet.</summary>
public struct LoadProgress {
  /// <summary>Loading.Take says how.</summary>
  public bool Ended;
  public ulong DoneBytes, TotalBytes;
}

/// <summary>A model that is being loaded. Made by Device.BeginLoad; disposing it ends the loading.</summary>
public sealed class Loading : IDisposable {
  private readonly LoadingHandle handle;

  internal Loading(LoadingHandle handle) { this.handle = handle; }

  /// <summary>How far it is, once it has ended or after that long; 0: now.</summary>
  public LoadProgress Wait(ulong microseconds = Abi.PUMICE_NO_LIMIT) {
    var progress = new pumice_load_progress { struct_size = Native.SizeOf<pumice_load_progress>() };
    Native.Check(Abi.pumice_loading_wait(handle, microseconds, ref progress));
    return new LoadProgress {
      Ended = progress.phase == LoadPhase.Ended, DoneBytes = progress.done_bytes, TotalBytes = progress.total_bytes
    };
  }

  /// <summary>It ends soon; nothing happens to one that has ended.</summary>
  public void Cancel() {
    Status status = Abi.pumice_loading_cancel(handle);
    if (status != Status.NotFound) Native.Check(status);
  }

  /// <summary>The model, once, waiting for it. Throws what Device.Load does, and Status.Cancelled.</summary>
  public Model Take() {
    Wait();
    ModelHandle model;
    Native.Check(Abi.pumice_loading_take(handle, out model));
    return new Model(model);
  }

  public void Dispose() { handle.Dispose(); }
}

public sealed class ModelInfo {
  public string Name { get; private set; }
  public string Architecture { get; private set; }
  public ulong ResidentBytes { get; private set; }
  public int Vocabulary { get; private set; }
  public int Layers { get; private set; }
  public int TrainedContextTokens { get; private set; }
  public bool HasChatTemplate { get; private set; }

  internal ModelInfo(pumice_model_info info) {
    Name = Native.Text(info.name);
    Architecture = Native.Text(info.architecture);
    ResidentBytes = info.resident_bytes;
    Vocabulary = checked((int)info.n_vocabulary);
    Layers = checked((int)info.n_layers);
    TrainedContextTokens = checked((int)info.trained_context_tokens);
    HasChatTemplate = info.has_chat_template != 0;
  }
}

/// <summary>Made by Device.Load and Loading.Take.</summary>
public sealed class Model : IDisposable {
  internal readonly ModelHandle Handle;

  internal Model(ModelHandle handle) { Handle = handle; }

  public ModelInfo Info {
    get {
      var info = new pumice_model_info { struct_size = Native.SizeOf<pumice_model_info>() };
      Native.Check(Abi.pumice_model_get_info(Handle, ref info));
      return new ModelInfo(info);
    }
  }

  /// <summary>`special`: as a prompt's start, and texts such as "&lt;/s&gt;" are the tokens of that name.</summary>
  public uint[] Tokenize(string text, bool special = true) {
    using (var scope = new Scope()) {
      pumice_string given = scope.String(text);
      return Native.Counted<uint>((uint[] tokens, UIntPtr capacity, out UIntPtr count) =>
        Abi.pumice_tokenize(Handle, given, Native.Bool(special), tokens, capacity, out count));
    }
  }

  public string Detokenize(uint[] tokens) {
    byte[] text = Native.Counted<byte>((byte[] bytes, UIntPtr capacity, out UIntPtr count) =>
      Abi.pumice_detokenize(Handle, tokens, (UIntPtr)(ulong)tokens.Length, bytes, capacity, out count));
    return System.Text.Encoding.UTF8.GetString(text);
  }

  /// <summary>A JSON Schema, grammar (GBNF) or regular expression, compiled once for as many answers as like.</summary>
  public Constraint Compile(ConstraintKind kind, string text) { return new Constraint(this, kind, text); }

  public Engine CreateEngine(EngineOptions options = null) { return new Engine(this, options ?? new EngineOptions()); }

  /// <summary>Of a model that was loaded with ModelOptions.Embeds.</summary>
  public Embedder CreateEmbedder(EmbedderOptions options = null) {
    return new Embedder(this, options ?? new EmbedderOptions());
  }

  public void Dispose() { Handle.Dispose(); }
}

/// <summary>What answers are held to. Made by Model.Compile.</summary>
public sealed class Constraint : IDisposable {
  internal readonly ConstraintHandle Handle;

  internal Constraint(Model model, ConstraintKind kind, string text) {
    using (var scope = new Scope()) {
      var options = new pumice_constraint_options {
        struct_size = Native.SizeOf<pumice_constraint_options>(), kind = kind, text = scope.String(text)
      };
      Native.Check(Abi.pumice_constraint_compile(model.Handle, ref options, out Handle));
    }
  }

  public void Dispose() { Handle.Dispose(); }
}
/// <summary>Makes vectors of texts. Made by Model.CreateEmbedder. One thread at a time.</summary>
public sealed class Embedder : IDisposable {
  private readonly EmbedderHandle handle;

  /// <summary>Numbers of a vector.</summary>
  public int Width { get; private set; }
  /// <summary>Of the longest text.</summary>
  public int TextTokens { get; private set; }

  internal Embedder(Model model, EmbedderOptions options) {
    using (var scope = new Scope()) {
      pumice_embedder_options given = options.Of(scope);
      Native.Check(Abi.pumice_embedder_create(model.Handle, ref given, out handle));
    }
    var info = new pumice_embedder_info { struct_size = Native.SizeOf<pumice_embedder_info>() };
    Native.Check(Abi.pumice_embedder_get_info(handle, ref info));
    Width = checked((int)info.width);
    TextTokens = checked((int)info.text_tokens);
  }

  /// <summary>A vector of each text.</summary>
  public float[][] Embed(IList<string> texts) {
    using (var scope = new Scope()) {
      pumice_string[] given = texts.Select(scope.String).ToArray();
      var all = new float[checked(given.Length * Width)];
      UIntPtr count;
      Native.Check(Abi.pumice_embed(handle, given, (UIntPtr)(ulong)given.Length, all, (UIntPtr)(ulong)all.Length, out count));
      var vectors = new float[given.Length][];
      for (int i = 0; i < vectors.Length; ++i) {
        vectors[i] = new float[Width];
        Array.Copy(all, i * Width, vectors[i], 0, Width);
      }
      return vectors;
    }
  }

  public void Dispose() { handle.Dispose(); }
}
}
