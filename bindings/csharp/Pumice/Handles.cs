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
        low_priority = Native.Bool(options.LowPriority)
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

  /// <summary>A model of a GGUF file: seconds for a large one. `engine`: what it leaves room for; `adapters`: LoRA adapters
  /// for sessions, from names to GGUF files.</summary>
  public Model Load(string path, EngineOptions engine = null, IDictionary<string, string> adapters = null) {
    using (var scope = new Scope()) {
      pumice_model_options options = ModelOptions(scope, path, engine, adapters);
      ModelHandle model;
      Native.Check(Abi.pumice_model_load(Handle, ref options, out model));
      return new Model(model);
    }
  }

  /// <summary>The same, while this thread goes on.</summary>
  public Loading BeginLoad(string path, EngineOptions engine = null, IDictionary<string, string> adapters = null) {
    using (var scope = new Scope()) {
      pumice_model_options options = ModelOptions(scope, path, engine, adapters);
      LoadingHandle loading;
      Native.Check(Abi.pumice_model_load_begin(Handle, ref options, out loading));
      return new Loading(loading);
    }
  }

  public void Dispose() { Handle.Dispose(); }

  private static pumice_model_options ModelOptions(Scope scope, string path, EngineOptions engine,
                                                   IDictionary<string, string> adapters) {
    var given = (adapters ?? new Dictionary<string, string>())
      .Select(one => new pumice_adapter { name = scope.String(one.Key), path = scope.String(one.Value) }).ToList();
    return new pumice_model_options {
      struct_size = Native.SizeOf<pumice_model_options>(), path = scope.String(path),
      engine = engine == null ? IntPtr.Zero : scope.Struct(engine.Of(scope)),
      adapters = scope.Structs(given), n_adapters = (UIntPtr)(ulong)given.Count
    };
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
}
