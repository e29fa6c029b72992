using System;
using System.Collections;
using System.Collections.Generic;
using System.Linq;
using System.Threading;

namespace Pumice {

/// <summary>What generates. Made by Model.CreateEngine. Any thread may use it: one of those that wait for answers does its
/// work, and hands the others theirs.</summary>
public sealed class Engine : IDisposable {
  private const int WaitMilliseconds = 50;  // then threads that wait look whether their answer came

  internal readonly EngineHandle Handle;
  private readonly object polling = new object();  // the library's polling thread: who holds it
  private readonly object arrived = new object();  // guards `answers` and what each has
  private readonly Dictionary<ulong, Answer> answers = new Dictionary<ulong, Answer>();

  internal Engine(Model model, EngineOptions options) {
    using (var scope = new Scope()) {
      pumice_engine_options given = options.Of(scope);
      Native.Check(Abi.pumice_engine_create(model.Handle, ref given, out Handle));
    }
  }

  /// <summary>Continues a text.</summary>
  public Answer Generate(string prompt, AnswerOptions options = null) {
    return Submit(0, options, (scope, request) => {
      request.text = scope.String(prompt);
      return request;
    });
  }

  /// <summary>Continues tokens.</summary>
  public Answer Generate(uint[] tokens, AnswerOptions options = null) {
    return Submit(0, options, (scope, request) => {
      request.tokens = scope.Structs(tokens);
      request.n_tokens = (UIntPtr)(ulong)tokens.Length;
      return request;
    });
  }

  /// <summary>Answers messages, by the model's chat template.</summary>
  public Answer Chat(IList<Message> messages, AnswerOptions options = null) { return Chat(0, messages, options); }

  /// <summary>Answers messages as OpenAI has them, a JSON array of any roles, in parts: Answer.Reasoning, Content and
  /// Calls. The model needs a chat template.</summary>
  public Answer Ask(string messagesJson, AnswerOptions options = null) { return Ask(0, messagesJson, options); }

  /// <summary>A conversation, or a character.</summary>
  public Session OpenSession(SessionOptions options = null) {
    options = options ?? new SessionOptions();
    using (var scope = new Scope()) {
      pumice_session_options given = options.Of(scope);
      ulong number;
      Native.Check(Abi.pumice_session_open(Handle, ref given, out number));
      return new Session(this, number, options.System);
    }
  }

  /// <summary>The session that Session.Save gave, of sources that you trust.</summary>
  public Session Restore(byte[] saved, bool tokensOnly = false) {
    var options = new pumice_restore_options {
      struct_size = Native.SizeOf<pumice_restore_options>(), tokens_only = Native.Bool(tokensOnly)
    };
    ulong number;
    lock (polling) {
      Native.Check(Abi.pumice_session_restore(Handle, saved, (UIntPtr)(ulong)saved.Length, ref options, out number));
    }
    return new Session(this, number, null);
  }

  /// <summary>How the engine shares its device with others.</summary>
  public Mode Mode { set { Native.Check(Abi.pumice_set_mode(Handle, value)); } }

  /// <summary>Of all engines on the device; null: no budget.</summary>
  public void SetMemoryBudget(ulong? bytes) {
    lock (polling) Native.Check(Abi.pumice_set_memory_budget(Handle, bytes ?? Abi.PUMICE_NO_LIMIT));
  }

  /// <summary>What pumice_stats has, by its names.</summary>
  public IDictionary<string, ulong> Stats {
    get {
      var stats = new pumice_stats { struct_size = Native.SizeOf<pumice_stats>() };
      Native.Check(Abi.pumice_get_stats(Handle, ref stats));
      object boxed = stats;
      return typeof(pumice_stats).GetFields().Where(one => one.Name != "struct_size")
        .ToDictionary(one => one.Name, one => Convert.ToUInt64(one.GetValue(boxed)));
    }
  }

  /// <summary>How long that took in all requests so far.</summary>
  public Latency GetLatency(LatencyKind kind) {
    var latency = new pumice_latency { struct_size = Native.SizeOf<pumice_latency>() };
    Native.Check(Abi.pumice_get_latency(Handle, kind, ref latency));
    return new Latency(latency);
  }

  /// <summary>Compiles kernels for about that long; whether all are there.</summary>
  public bool Prewarm(ulong microseconds) {
    uint done, total;
    lock (polling) Native.Check(Abi.pumice_prewarm(Handle, microseconds, out done, out total));
    return done == total;
  }

  /// <summary>One step of work, for programs that draw frames: as much as keeps the device busy for that long. Answers
  /// then have what came (Answer.Take).</summary>
  public void Poll(ulong microseconds) {
    lock (polling) {
      Native.Check(Abi.pumice_poll(Handle, microseconds));
      TakeEvents();
    }
  }

  /// <summary>For StartCoroutine: polls once a frame until the engine is disposed.</summary>
  public IEnumerator Frames(ulong microseconds) {
    while (!Handle.IsClosed) {
      Poll(microseconds);
      yield return null;
    }
  }

  /// <summary>Answers under way can't be read to their end afterwards.</summary>
  public void Dispose() { Handle.Dispose(); }

  internal Answer Chat(ulong session, IList<Message> messages, AnswerOptions options) {
    return Submit(session, options, (scope, request) => {
      request.messages = scope.Structs(messages.Select(one => new pumice_message {
        role = scope.String(one.Role), content = scope.String(one.Content) }).ToList());
      request.n_messages = (UIntPtr)(ulong)messages.Count;
      return request;
    });
  }

  internal Answer Ask(ulong session, string messagesJson, AnswerOptions options) {
    return Submit(session, options, (scope, request) => {
      request.parts = 1;
      request.messages_json = scope.String(messagesJson);
      return request;
    });
  }

  internal Answer Submit(ulong session, AnswerOptions options,
                         Func<Scope, pumice_request_options, pumice_request_options> withPrompt) {
    options = options ?? new AnswerOptions();
    ConstraintHandle constraint = options.Constraint == null ? null : options.Constraint.Handle;
    bool held = false;
    try {
      if (constraint != null) constraint.DangerousAddRef(ref held);
      using (var scope = new Scope()) {
        pumice_request_options request =
          withPrompt(scope, options.Of(scope, held ? constraint.DangerousGetHandle() : IntPtr.Zero));
        ulong number;
        lock (arrived) {  // no event of it is taken before it is known
          Native.Check(Abi.pumice_submit(Handle, session, ref request, out number));
          Answer answer = new Answer(this, number, options.TopLogProbs != null);
          answers.Add(number, answer);
          return answer;
        }
      }
    } finally {
      if (held) constraint.DangerousRelease();
    }
  }

  internal object Arrived { get { return arrived; } }

  internal void Cancel(ulong request) {
    Status status = Abi.pumice_cancel(Handle, request);
    if (status != Status.NotFound) Native.Check(status);  // not found: another thread just took its end
  }

  internal byte[] Save(ulong session) {
    lock (polling) {
      IntPtr data;
      UIntPtr size;
      Native.Check(Abi.pumice_session_save(Handle, session, out data, out size));
      return Native.Bytes(data, checked((int)size));
    }
  }

  /// <summary>Until that answer has something new, by whichever thread.</summary>
  internal void Work(Answer answer) {
    while (!answer.HasNews) {
      if (Monitor.TryEnter(polling)) {
        try {
          Native.Check(Abi.pumice_poll(Handle, Abi.PUMICE_NO_LIMIT));
          TakeEvents();
          if (!answer.HasNews) Native.Check(Abi.pumice_wait(Handle, WaitMilliseconds * 1000));
        } finally {
          Monitor.Exit(polling);
          lock (arrived) Monitor.PulseAll(arrived);
        }
      } else {
        lock (arrived) {
          if (!answer.HasNews) Monitor.Wait(arrived, WaitMilliseconds);
        }
      }
    }
  }

  private void TakeEvents() {
    while (true) {
      var one = new pumice_event { struct_size = Native.SizeOf<pumice_event>() };
      Native.Check(Abi.pumice_next_event(Handle, ref one));
      if (one.kind == EventKind.None) return;
      lock (arrived) {
        Answer answer;
        if (!answers.TryGetValue(one.request, out answer)) continue;
        answer.Add(one);
        if (one.kind == EventKind.Finished) answers.Remove(one.request);
      }
    }
  }
}

/// <summary>A conversation. Made by Engine.OpenSession; it remembers what was said.</summary>
public sealed class Session : IDisposable {
  private readonly Engine engine;
  private readonly ulong number;
  private string system;
  private bool closed;

  internal Session(Engine engine, ulong number, string system) {
    this.engine = engine;
    this.number = number;
    this.system = system;
  }

  /// <summary>Answers what is said.</summary>
  public Answer Say(string text, AnswerOptions options = null) {
    var messages = new List<Message>();
    if (system != null) messages.Add(new Message("system", system));
    messages.Add(new Message("user", text));
    Answer answer = engine.Chat(number, messages, options);
    system = null;
    return answer;
  }

  /// <summary>Answers messages as Engine.Ask does: what was said since, a tool's results alone, say. SessionOptions.System
  /// is for Say: here it is the first message.</summary>
  public Answer Ask(string messagesJson, AnswerOptions options = null) {
    if (system != null) throw new InvalidOperationException("SessionOptions.System is for Say: give Ask a first message");
    return engine.Ask(number, messagesJson, options);
  }

  /// <summary>Continues the last answer or, of sessions without messages, a text.</summary>
  public Answer GoOn(string text = null, AnswerOptions options = null) {
    return engine.Submit(number, options, (scope, request) => {
      request.text = scope.String(text);
      return request;
    });
  }

  /// <summary>What it holds.</summary>
  public uint[] Tokens {
    get {
      return Native.Counted<uint>((uint[] tokens, UIntPtr capacity, out UIntPtr count) =>
        Abi.pumice_session_tokens(engine.Handle, number, tokens, capacity, out count));
    }
  }

  /// <summary>How many questions were asked, answered or not; of sessions without messages, requests with a prompt.</summary>
  public int Turns {
    get {
      uint turns;
      Native.Check(Abi.pumice_session_turns(engine.Handle, number, out turns));
      return checked((int)turns);
    }
  }

  /// <summary>To the end of that many turns. `keepQuestion`: to before the next one's reply, which GoOn gives anew.</summary>
  public void RollBack(int turns, bool keepQuestion = false) {
    Native.Check(Abi.pumice_session_rollback(engine.Handle, number, checked((uint)turns), Native.Bool(keepQuestion)));
  }

  /// <summary>Bytes for Engine.Restore, with its keys and values.</summary>
  public byte[] Save() { return engine.Save(number); }

  /// <summary>Cancels its answer, if one is under way.</summary>
  public void Dispose() {
    if (closed || engine.Handle.IsClosed) return;
    closed = true;
    Native.Check(Abi.pumice_session_close(engine.Handle, number));
  }
}
}
