using System;
using System.Collections.Generic;
using System.Linq;

namespace Pumice {

/// <summary>A LoRA adapter: a GGUF file, or its bytes in memory that stays as it is as long as the model's.</summary>
public sealed class Adapter {
  public string Path;
  public IntPtr Memory;
  public ulong MemoryBytes;
  /// <summary>Of all that it adds.</summary>
  public float Scale = 1;

  public Adapter() {}

  public Adapter(string path, float scale = 1) {
    Path = path;
    Scale = scale;
  }

  internal pumice_adapter Of(Scope scope, string name) {
    if (Scale == 0) throw new ArgumentException("adapter " + name + ": with a scale of 0 it adds nothing");
    return new pumice_adapter {
      name = scope.String(name), path = scope.String(Path), memory = Memory, memory_bytes = MemoryBytes, scale = Scale
    };
  }
}

/// <summary>How a model is loaded.</summary>
public sealed class ModelOptions {
  /// <summary>The engine that it leaves room for.</summary>
  public EngineOptions Engine;
  /// <summary>The file's bytes instead of a file, in memory that stays as it is until the model, its engines and its
  /// embedders are disposed of: what SafeMemoryMappedViewHandle, say, or a pinned array points to.</summary>
  public IntPtr Memory;
  public ulong MemoryBytes;
  /// <summary>Jinja, instead of the file's own.</summary>
  public string ChatTemplate;
  /// <summary>How it writes reasoning and calls, by the name of a family of models, instead of what its template
  /// shows.</summary>
  public string AnswerFormat;
  /// <summary>For Model.CreateEmbedder instead of engines.</summary>
  public bool Embeds;
  /// <summary>How the vectors of a text's tokens become one: "mean", "cls" or "last"; null: what the file says.</summary>
  public string Pooling;
  /// <summary>By the names that sessions and answers give them.</summary>
  public IDictionary<string, Adapter> Adapters;

  internal pumice_model_options Of(Scope scope, string path) {
    var adapters = (Adapters ?? new Dictionary<string, Adapter>()).Select(one => one.Value.Of(scope, one.Key)).ToList();
    return new pumice_model_options {
      struct_size = Native.SizeOf<pumice_model_options>(), path = scope.String(path),
      engine = Engine == null ? IntPtr.Zero : scope.Struct(Engine.Of(scope)), chat_template = scope.String(ChatTemplate),
      answer_format = scope.String(AnswerFormat), memory = Memory, memory_bytes = MemoryBytes,
      embeds = Native.Bool(Embeds), pooling = scope.String(Pooling), adapters = scope.Structs(adapters),
      n_adapters = (UIntPtr)(ulong)adapters.Count
    };
  }
}

/// <summary>Zeros and nulls are the library's defaults; pumice.h explains each.</summary>
public sealed class EngineOptions {
  public uint ContextTokens;
  /// <summary>Requests that run at once; others wait.</summary>
  public uint Sequences;
  public ulong KvTokens;
  public uint TokenBudget, ChunkTokens, TokenIntervalMicroseconds;
  public Overflow Overflow;
  public string KvType, Arithmetic;
  public ulong CacheHostBytes;
  public bool Invariant, NoPrefixCache;
  /// <summary>Kernels are compiled by Engine.Prewarm or Engine.Poll, not while the engine is made.</summary>
  public bool PrewarmLater;
  /// <summary>A service class that was not served for so long gets a turn; zero: a minute.</summary>
  public TimeSpan Aging;
  /// <summary>How many of a step's tokens generation of other classes leaves to that of each.</summary>
  public uint ReservedInteractiveTokens, ReservedNormalTokens, ReservedBatchTokens;
  /// <summary>For Speculation.Mtp: the model's own block that predicts. ModelOptions.Engine must say it too.</summary>
  public bool Mtp;
  /// <summary>For Speculation.Draft: the GGUF file of a smaller model with the same tokens.</summary>
  public string DraftModel;
  /// <summary>A folder of computed prefixes that engines of any processes share; CacheHostBytes must not be 0.</summary>
  public string PrefixStore;
  public ulong PrefixStoreBytes;

  internal pumice_engine_options Of(Scope scope) {
    return new pumice_engine_options {
      struct_size = Native.SizeOf<pumice_engine_options>(), context_tokens = ContextTokens, n_sequences = Sequences,
      kv_tokens = KvTokens, token_budget = TokenBudget, chunk_tokens = ChunkTokens,
      token_interval_us = TokenIntervalMicroseconds, overflow = Overflow, kv_type = scope.String(KvType),
      arithmetic = scope.String(Arithmetic), cache_host_bytes = CacheHostBytes, invariant = Native.Bool(Invariant),
      no_prefix_cache = Native.Bool(NoPrefixCache), prewarm_later = Native.Bool(PrewarmLater),
      aging_us = Native.Microseconds(Aging), reserved_interactive_tokens = ReservedInteractiveTokens,
      reserved_normal_tokens = ReservedNormalTokens, reserved_batch_tokens = ReservedBatchTokens, mtp = Native.Bool(Mtp),
      draft_model = scope.String(DraftModel), prefix_store = scope.String(PrefixStore), prefix_store_bytes = PrefixStoreBytes
    };
  }
}

/// <summary>Zeros and nulls are the library's defaults; pumice.h explains each.</summary>
public sealed class EmbedderOptions {
  /// <summary>Of the longest text.</summary>
  public uint TextTokens;
  public uint StepTokens;
  public string KvType, Arithmetic;
  public bool Invariant, NotNormalized;

  internal pumice_embedder_options Of(Scope scope) {
    return new pumice_embedder_options {
      struct_size = Native.SizeOf<pumice_embedder_options>(), text_tokens = TextTokens, step_tokens = StepTokens,
      kv_type = scope.String(KvType), arithmetic = scope.String(Arithmetic), invariant = Native.Bool(Invariant),
      not_normalized = Native.Bool(NotNormalized)
    };
  }
}

/// <summary>How tokens are chosen; without one, always the likeliest.</summary>
public sealed class Sampling {
  public float Temperature;
  public uint TopK;
  public float TopP, MinP, RepeatPenalty, FrequencyPenalty, PresencePenalty;
  public ulong Seed;
  /// <summary>What is added to tokens' logits; negative infinity bans one.</summary>
  public IDictionary<uint, float> LogitBias;

  internal pumice_sampling Of(Scope scope) {
    var biases = (LogitBias ?? new Dictionary<uint, float>())
      .Select(one => new pumice_logit_bias { token = one.Key, bias = one.Value }).ToList();
    return new pumice_sampling {
      struct_size = Native.SizeOf<pumice_sampling>(), temperature = Temperature, top_k = TopK, top_p = TopP, min_p = MinP,
      repeat_penalty = RepeatPenalty, frequency_penalty = FrequencyPenalty, presence_penalty = PresencePenalty,
      seed = Seed, logit_biases = scope.Structs(biases), n_logit_biases = (UIntPtr)(ulong)biases.Count
    };
  }
}

public sealed class SessionOptions {
  /// <summary>What the model is told before anything is said.</summary>
  public string System;
  public Sampling Sampling;
  public ServiceClass ServiceClass;
  public int Priority;
  public string Salt;
  public float MaxTokensPerSecond;
  /// <summary>Text comes in whole sentences.</summary>
  public bool Sentences;
  /// <summary>The name of one of the model's; null: the model as it is.</summary>
  public string Adapter;

  internal pumice_session_options Of(Scope scope) {
    return new pumice_session_options {
      struct_size = Native.SizeOf<pumice_session_options>(),
      sampling = Sampling == null ? IntPtr.Zero : scope.Struct(Sampling.Of(scope)), service_class = ServiceClass,
      priority = Priority, salt = scope.String(Salt), max_tokens_per_second = MaxTokensPerSecond,
      sentences = Native.Bool(Sentences), adapter = scope.String(Adapter)
    };
  }
}

public struct Message {
  /// <summary>"system", "user" or "assistant".</summary>
  public string Role;
  public string Content;

  public Message(string role, string content) {
    Role = role;
    Content = content;
  }
}

/// <summary>Of one answer.</summary>
public sealed class AnswerOptions {
  /// <summary>0: what the context holds.</summary>
  public uint MaxTokens;
  /// <summary>Null: the session's.</summary>
  public Sampling Sampling;
  /// <summary>Texts that end the answer and are left out.</summary>
  public IList<string> Stops;
  public TimeSpan Timeout;
  public bool Special, IgnoreEnd;
  public Constraint Constraint;
  public Speculation Speculation;
  /// <summary>Answer.LogProbs is filled, with so many of the likeliest in each token's place (at most 20).</summary>
  public uint? TopLogProbs;
  /// <summary>Answer.Scores is filled: how probable the prompt's tokens were.</summary>
  public bool Scores;
  /// <summary>Another answer to the same prompt, of which this one is another choice: give it a seed of its own.</summary>
  public Answer SharesPromptWith;
  /// <summary>Of a guess; 0: the library's default.</summary>
  public uint MaxDraftTokens;
  /// <summary>Of an answer without a session: its class, priority, salt, pace and adapter.</summary>
  public SessionOptions Alone;
  /// <summary>Of Ask: what the model may call, OpenAI's tools, a JSON array.</summary>
  public string ToolsJson;
  /// <summary>Of Ask: "auto", "none", "required", or the name of the tool that is called.</summary>
  public string ToolChoice;
  /// <summary>Of Ask: the chat template's variables, a JSON object: {"enable_thinking": false}.</summary>
  public string TemplateVariablesJson;

  internal pumice_request_options Of(Scope scope, IntPtr constraint) {
    var stops = (Stops ?? new string[0]).Select(scope.String).ToList();
    return new pumice_request_options {
      struct_size = Native.SizeOf<pumice_request_options>(), max_new_tokens = MaxTokens,
      sampling = Sampling == null ? IntPtr.Zero : scope.Struct(Sampling.Of(scope)), stops = scope.Structs(stops),
      n_stops = (UIntPtr)(ulong)stops.Count, special = Native.Bool(Special), ignore_end = Native.Bool(IgnoreEnd),
      timeout_us = Native.Microseconds(Timeout), constraint = constraint, speculation = Speculation,
      log_probs = Native.Bool(TopLogProbs != null), n_top_log_probs = TopLogProbs ?? 0, scores = Native.Bool(Scores),
      shares_prompt_with = SharesPromptWith == null ? 0 : SharesPromptWith.Request, max_draft_tokens = MaxDraftTokens,
      alone = Alone == null ? IntPtr.Zero : scope.Struct(Alone.Of(scope)), tools_json = scope.String(ToolsJson),
      tool_choice = scope.String(ToolChoice), template_variables_json = scope.String(TemplateVariablesJson)
    };
  }
}

public struct TokenLogProb {
  public uint Token;
  public float LogProb;
}

/// <summary>How probable a token was to the model, and the likeliest in its place.</summary>
public sealed class TokenChoice {
  public float LogProb { get; internal set; }
  public IList<TokenLogProb> Likeliest { get; internal set; }
}

/// <summary>A call of a tool, in an answer of Ask. Its result is a message of the role "tool" with its Id.</summary>
public sealed class ToolCall {
  public string Id { get; internal set; }
  public string Name { get; internal set; }
  /// <summary>A JSON object, as far as it came.</summary>
  public string Arguments { get; internal set; }
  /// <summary>It ended as it should; not yet, or the model broke off.</summary>
  public bool Complete { get; internal set; }
}

/// <summary>How long something took in all requests of an engine.</summary>
public sealed class Latency {
  public ulong Count { get; private set; }
  public TimeSpan Sum { get; private set; }
  public TimeSpan P50 { get; private set; }
  public TimeSpan P90 { get; private set; }
  public TimeSpan P99 { get; private set; }
  public TimeSpan Max { get; private set; }

  internal Latency(pumice_latency latency) {
    Count = latency.count;
    Sum = Native.Duration(latency.sum_us);
    P50 = Native.Duration(latency.p50_us);
    P90 = Native.Duration(latency.p90_us);
    P99 = Native.Duration(latency.p99_us);
    Max = Native.Duration(latency.max_us);
  }
}

public sealed class Usage {
  public int PromptTokens { get; internal set; }
  public int CachedTokens { get; internal set; }
  public int GeneratedTokens { get; internal set; }
  /// <summary>Guessed and verified, and how many of these came.</summary>
  public int DraftedTokens { get; internal set; }
  public int AcceptedTokens { get; internal set; }
  /// <summary>The oldest, left out as the context did not hold them.</summary>
  public int ForgottenQuestions { get; internal set; }
  public TimeSpan FirstToken { get; internal set; }
  public TimeSpan Total { get; internal set; }
}
}
