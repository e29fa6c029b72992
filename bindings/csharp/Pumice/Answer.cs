using System;
using System.Collections;
using System.Collections.Generic;
using System.Linq;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Pumice {

/// <summary>What a request says: `foreach` and NextAsync give pieces of text as they come, each once.</summary>
public sealed class Answer : IEnumerable<string> {
  private readonly Engine engine;
  internal readonly ulong Request;
  private readonly bool hasLogProbs;
  private readonly StringBuilder fresh = new StringBuilder();
  private readonly StringBuilder taken = new StringBuilder();
  private readonly List<uint> tokens = new List<uint>();
  private readonly List<TokenChoice> logProbs = new List<TokenChoice>();
  private readonly List<TokenLogProb> scores = new List<TokenLogProb>();
  private readonly StringBuilder reasoning = new StringBuilder();
  private readonly StringBuilder content = new StringBuilder();
  private readonly List<ToolCall> calls = new List<ToolCall>();
  private PumiceException error;
  private int computedTokens;
  private bool finished;
  private EndReason endReason;
  private Usage usage;

  internal Answer(Engine engine, ulong request, bool hasLogProbs) {
    this.engine = engine;
    this.hasLogProbs = hasLogProbs;
    Request = request;
  }

  /// <summary>All that was taken so far.</summary>
  public string Text { get { lock (engine.Arrived) return taken.ToString(); } }
  /// <summary>All that came so far.</summary>
  public uint[] Tokens { get { lock (engine.Arrived) return tokens.ToArray(); } }
  /// <summary>Of these tokens, if AnswerOptions.TopLogProbs asked for it.</summary>
  public TokenChoice[] LogProbs { get { lock (engine.Arrived) return logProbs.ToArray(); } }
  /// <summary>Of the prompt's tokens but the first, if AnswerOptions.Scores asked for it: how probable each was behind
  /// those before it.</summary>
  public TokenLogProb[] Scores { get { lock (engine.Arrived) return scores.ToArray(); } }
  /// <summary>How much of prompt and answer was computed so far.</summary>
  public int ComputedTokens { get { lock (engine.Arrived) return computedTokens; } }
  /// <summary>Of Ask: what the model thought so far.</summary>
  public string Reasoning { get { lock (engine.Arrived) return reasoning.ToString(); } }
  /// <summary>Of Ask: what it said so far, without reasoning and calls.</summary>
  public string Content { get { lock (engine.Arrived) return content.ToString(); } }
  /// <summary>Of Ask: the calls that came so far.</summary>
  public ToolCall[] Calls { get { lock (engine.Arrived) return calls.ToArray(); } }
  /// <summary>Whether all of it is there.</summary>
  public bool Finished { get { lock (engine.Arrived) return finished; } }
  /// <summary>None until it has finished.</summary>
  public EndReason EndReason { get { lock (engine.Arrived) return endReason; } }
  /// <summary>Null until it has finished.</summary>
  public Usage Usage { get { lock (engine.Arrived) return usage; } }

  /// <summary>The text that came since, without waiting: for programs that call Engine.Poll.</summary>
  public string Take() {
    lock (engine.Arrived) {
      string text = fresh.ToString();
      fresh.Length = 0;
      taken.Append(text);
      return text;
    }
  }

  /// <summary>The next piece, or null at the end; waits.</summary>
  public string Next() {
    engine.Work(this);
    string text = Take();
    if (text.Length > 0) return text;
    if (error != null) throw error;
    return null;
  }

  /// <summary>As Next, without holding the thread that asks.</summary>
  public Task<string> NextAsync() { return Task.Run(() => Next()); }

  /// <summary>To its end: itself.</summary>
  public Answer Wait() {
    while (Next() != null) {
    }
    return this;
  }

  /// <summary>To its end, its text; a token that is cancelled cancels the answer.</summary>
  public async Task<string> WaitAsync(CancellationToken cancellation = default(CancellationToken)) {
    using (cancellation.Register(Cancel)) await Task.Run(() => Wait()).ConfigureAwait(false);
    cancellation.ThrowIfCancellationRequested();
    return Text;
  }

  /// <summary>For StartCoroutine: hands over what came, once a frame, until the end. Engine.Poll or Engine.Frames does
  /// the work meanwhile.</summary>
  public IEnumerator Frames(Action<string> onText) {
    while (true) {
      bool last = Finished;
      string text = Take();
      if (text.Length > 0) onText(text);
      if (last) break;
      yield return null;
    }
    if (error != null) throw error;
  }

  /// <summary>What came stays; nothing happens to one that has ended.</summary>
  public void Cancel() {
    if (!Finished) engine.Cancel(Request);
  }

  public IEnumerator<string> GetEnumerator() {
    for (string piece = Next(); piece != null; piece = Next()) yield return piece;
  }

  IEnumerator IEnumerable.GetEnumerator() { return GetEnumerator(); }

  internal bool HasNews { get { lock (engine.Arrived) return fresh.Length > 0 || finished; } }

  /// <summary>An event of the library's; of Engine alone, which holds Arrived.</summary>
  internal void Add(pumice_event one) {
    computedTokens = checked((int)one.computed_tokens);
    if (one.kind == EventKind.Score) {
      scores.Add(new TokenLogProb { Token = one.token, LogProb = one.log_prob });
    } else if (one.has_token != 0) {
      tokens.Add(one.token);
      if (hasLogProbs) logProbs.Add(Choice(one));
    }
    foreach (pumice_answer_part part in Native.Structs<pumice_answer_part>(one.parts, one.n_parts)) Add(part);
    fresh.Append(Native.Text(one.text));
    if (one.kind != EventKind.Finished) return;
    finished = true;
    endReason = one.end_reason;
    usage = new Usage {
      PromptTokens = checked((int)one.prompt_tokens), CachedTokens = checked((int)one.cached_tokens),
      GeneratedTokens = checked((int)one.generated_tokens), DraftedTokens = checked((int)one.drafted_tokens),
      AcceptedTokens = checked((int)one.accepted_tokens), ForgottenQuestions = checked((int)one.forgotten_questions),
      FirstToken = Native.Duration(one.first_token_us), Total = Native.Duration(one.total_us)
    };
    if (one.status != Status.Ok) error = new PumiceException(one.status, Native.Text(one.message));
  }

  private void Add(pumice_answer_part part) {
    string text = Native.Text(part.text);
    if (part.kind == PartKind.Reasoning) {
      reasoning.Append(text);
    } else if (part.kind == PartKind.Text) {
      content.Append(text);
    } else if (part.kind == PartKind.CallBegun) {
      calls.Add(new ToolCall { Id = Native.Text(part.id), Name = text, Arguments = "" });
    } else if (part.kind == PartKind.Arguments) {
      calls[checked((int)part.call)].Arguments += text;
    } else if (part.kind == PartKind.CallEnded) {
      calls[checked((int)part.call)].Complete = part.complete != 0;
    }
  }

  private static TokenChoice Choice(pumice_event one) {
    var likeliest = Native.Structs<pumice_token_log_prob>(one.top_log_probs, one.n_top_log_probs)
      .Select(best => new TokenLogProb { Token = best.token, LogProb = best.log_prob });
    return new TokenChoice { LogProb = one.log_prob, Likeliest = likeliest.ToArray() };
  }
}
}
