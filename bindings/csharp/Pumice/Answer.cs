using System;
using System.Collections;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Pumice {

/// <summary>What a request says: `foreach` and NextAsync give pieces of text as they come, each once.</summary>
public sealed class Answer : IEnumerable<string> {
  private readonly Engine engine;
  private readonly ulong request;
  private readonly bool hasLogProbs;
  private readonly StringBuilder fresh = new StringBuilder();
  private readonly StringBuilder taken = new StringBuilder();
  private readonly List<uint> tokens = new List<uint>();
  private readonly List<TokenChoice> logProbs = new List<TokenChoice>();
  private PumiceException error;
  private bool finished;
  private EndReason endReason;
  private Usage usage;

  internal Answer(Engine engine, ulong request, bool hasLogProbs) {
    this.engine = engine;
    this.hasLogProbs = hasLogProbs;
    this.request = request;
  }

  /// <summary>All that was taken so far.</summary>
  public string Text { get { lock (engine.Arrived) return taken.ToString(); } }
  /// <summary>All that came so far.</summary>
  public uint[] Tokens { get { lock (engine.Arrived) return tokens.ToArray(); } }
  /// <summary>Of these tokens, if AnswerOptions.TopLogProbs asked for it.</summary>
  public TokenChoice[] LogProbs { get { lock (engine.Arrived) return logProbs.ToArray(); } }
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
    if (!Finished) engine.Cancel(request);
  }

  public IEnumerator<string> GetEnumerator() {
    for (string piece = Next(); piece != null; piece = Next()) yield return piece;
  }

  IEnumerator IEnumerable.GetEnumerator() { return GetEnumerator(); }

  internal bool HasNews { get { lock (engine.Arrived) return fresh.Length > 0 || finished; } }

  /// <summary>An event of the library's; of Engine alone, which holds Arrived.</summary>
  internal void Add(pumice_event one) {
    if (one.has_token != 0) {
      tokens.Add(one.token);
      if (hasLogProbs) logProbs.Add(Choice(one));
    }
    fresh.Append(Native.Text(one.text));
    if (one.kind != EventKind.Finished) return;
    finished = true;
    endReason = one.end_reason;
    usage = new Usage {
      PromptTokens = checked((int)one.prompt_tokens), CachedTokens = checked((int)one.cached_tokens),
      GeneratedTokens = checked((int)one.generated_tokens), FirstToken = Duration(one.first_token_us),
      Total = Duration(one.total_us)
    };
    if (one.status != Status.Ok) error = new PumiceException(one.status, Native.Text(one.message));
  }

  private static TokenChoice Choice(pumice_event one) {
    int size = Marshal.SizeOf(typeof(pumice_token_log_prob));
    var likeliest = new TokenLogProb[checked((int)one.n_top_log_probs)];
    for (int i = 0; i < likeliest.Length; ++i) {
      var best = (pumice_token_log_prob)Marshal.PtrToStructure(one.top_log_probs + i * size, typeof(pumice_token_log_prob));
      likeliest[i] = new TokenLogProb { Token = best.token, LogProb = best.log_prob };
    }
    return new TokenChoice { LogProb = one.log_prob, Likeliest = likeliest };
  }

  private static TimeSpan Duration(ulong microseconds) {
    return TimeSpan.FromTicks(checked((long)microseconds * (TimeSpan.TicksPerMillisecond / 1000)));
  }
}
}
