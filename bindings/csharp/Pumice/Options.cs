using System;
using System.Collections.Generic;
using System.Linq;

namespace Pumice {

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

  internal pumice_engine_options Of(Scope scope) {
    return new pumice_engine_options {
      struct_size = Native.SizeOf<pumice_engine_options>(), context_tokens = ContextTokens, n_sequences = Sequences,
      kv_tokens = KvTokens, token_budget = TokenBudget, chunk_tokens = ChunkTokens,
      token_interval_us = TokenIntervalMicroseconds, overflow = Overflow, kv_type = scope.String(KvType),
      arithmetic = scope.String(Arithmetic), cache_host_bytes = CacheHostBytes, invariant = Native.Bool(Invariant),
      no_prefix_cache = Native.Bool(NoPrefixCache), prewarm_later = Native.Bool(PrewarmLater)
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

  internal pumice_request_options Of(Scope scope, IntPtr constraint) {
    var stops = (Stops ?? new string[0]).Select(scope.String).ToList();
    return new pumice_request_options {
      struct_size = Native.SizeOf<pumice_request_options>(), max_new_tokens = MaxTokens,
      sampling = Sampling == null ? IntPtr.Zero : scope.Struct(Sampling.Of(scope)), stops = scope.Structs(stops),
      n_stops = (UIntPtr)(ulong)stops.Count, special = Native.Bool(Special), ignore_end = Native.Bool(IgnoreEnd),
      timeout_us = checked((ulong)(Timeout.Ticks / (TimeSpan.TicksPerMillisecond / 1000))), constraint = constraint,
      speculation = Speculation, log_probs = Native.Bool(TopLogProbs != null), n_top_log_probs = TopLogProbs ?? 0
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

public sealed class Usage {
  public int PromptTokens { get; internal set; }
  public int CachedTokens { get; internal set; }
  public int GeneratedTokens { get; internal set; }
  public TimeSpan FirstToken { get; internal set; }
  public TimeSpan Total { get; internal set; }
}
}
