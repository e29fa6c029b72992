using System;
using System.Collections;
using System.Threading.Tasks;
using UnityEngine;
using UnityEngine.Events;

namespace Pumice.Unity {

/// <summary>A character that converses and acts. What it says comes by sentences, as events. All members belong to Unity's
/// main thread.</summary>
public sealed class PumiceCharacter : MonoBehaviour {
  public PumiceRuntime runtime;
  [TextArea(3, 20), Tooltip("Who it is and how it talks.")]
  public string persona = "";
  [Tooltip("What it can do when it is asked to act.")]
  public PumiceTool[] tools = new PumiceTool[0];
  public int maxTokens = 120;
  public float temperature = 0.8f;
  public int seed = 1;

  [Tooltip("It can be spoken to.")]
  public UnityEvent ready = new UnityEvent();
  [Tooltip("A sentence of the answer, or what is left of one at its end.")]
  public TextEvent sentence = new TextEvent();
  [Tooltip("The answer has ended: all of it.")]
  public TextEvent answered = new TextEvent();
  [Tooltip("What it does: {\"name\": …, \"arguments\": {…}}.")]
  public TextEvent acted = new TextEvent();
  [Tooltip("It cannot be spoken to, or has no answer: the reason.")]
  public TextEvent failed = new TextEvent();

  private Task<Constraint> compiling;
  private Constraint actions;
  private Session session;
  private Answer answer;
  private IEnumerator reading;
  private string arrived = "";
  private bool acts, takenBack;
  private int turns;    // that it had before this one
  private int replies;  // that were taken back for another one: each has a seed of its own

  public bool Ready { get { return session != null; } }
  /// <summary>Then Say, Act and AnswerAgain are refused.</summary>
  public bool Speaking { get { return answer != null; } }

  /// <summary>Answers what is said to it.</summary>
  public void Say(string text) {
    int before = Opened().Turns;
    replies = 0;
    Begin(session.Say(text, Options(null)), before, false);
  }

  /// <summary>Chooses one of its tools, with arguments that are valid under the tool's schema.</summary>
  public void Act(string text) {
    int before = Opened().Turns;
    if (actions == null) throw new InvalidOperationException(name + " has nothing to do: give it tools before it starts");
    replies = 0;
    Begin(session.Say(text, Options(actions)), before, true);
  }

  /// <summary>The answer ends with what was said so far.</summary>
  public void Interrupt() {
    if (answer != null) answer.Cancel();
  }

  /// <summary>An answer that was interrupted, by a saved game too, goes on.</summary>
  public void GoOn() {
    int before = TurnsBefore();
    Begin(session.GoOn(null, Options(null)), before, false);
  }

  /// <summary>The last reply was never given, nor its question asked. One under way is interrupted, and gone when Speaking
  /// ends.</summary>
  public void TakeBack() {
    int before = TurnsBefore();
    takenBack = answer != null;
    if (takenBack) answer.Cancel();
    else session.RollBack(before);
  }

  /// <summary>Takes the last reply back and gives another to the same question.</summary>
  public void AnswerAgain() {
    int before = TurnsBefore();
    session.RollBack(before, true);
    ++replies;
    Begin(session.GoOn(null, Options(null)), before, false);
  }

  /// <summary>For a saved game: its conversation, and what it has computed for it. Also while it speaks.</summary>
  public byte[] Save() { return Opened().Save(); }

  /// <summary>What Save gave, with the same model. Nothing has changed where that fails.</summary>
  public void Load(byte[] saved) {
    Session old = Opened();
    Session restored = runtime.Engine.Restore(saved, tokensOnly: true);
    if (restored.Turns == 0) {  // it was told nothing yet, its persona included
      restored.Dispose();
      restored = Open();
    }
    session = restored;
    answer = null;
    takenBack = false;
    old.Dispose();
  }

  private void Update() {
    if (session == null) Prepare();
    else if (answer != null) Read();
  }

  private void OnDestroy() {
    if (session != null) session.Dispose();
    if (actions != null) actions.Dispose();
    else if (compiling != null)
      compiling.ContinueWith(late => late.Result.Dispose(), TaskContinuationOptions.OnlyOnRanToCompletion);
    session = null;
    answer = null;
    actions = null;
    compiling = null;
  }

  /// <summary>Opens the session when the model is there and the tools' grammar is compiled, which takes too long for a
  /// frame.</summary>
  private void Prepare() {
    if (runtime == null || !runtime.Ready) return;
    if (tools.Length > 0 && actions == null) {
      if (compiling == null) {
        Model model = runtime.Model;
        string schema = PumiceTool.Schema(tools);
        compiling = Task.Run(() => model.Compile(ConstraintKind.JsonSchema, schema));
      }
      if (!compiling.IsCompleted) return;
      if (compiling.IsFaulted) {
        enabled = false;
        Fail(compiling.Exception.InnerException.Message);
        return;
      }
      actions = compiling.Result;
    }
    session = Open();
    ready.Invoke();
  }

  private Session Open() {
    return runtime.Engine.OpenSession(new SessionOptions {
      System = persona + PumiceTool.Description(tools), Sampling = Sampling(), ServiceClass = ServiceClass.Interactive,
      Sentences = true
    });
  }

  private Session Opened() {
    if (session == null) throw new InvalidOperationException(name + " is not ready: wait for the event");
    return session;
  }

  private int TurnsBefore() {
    if (answer != null) return turns;
    int now = Opened().Turns;
    if (now == 0) throw new InvalidOperationException(name + " was asked nothing yet");
    return now - 1;
  }

  private Sampling Sampling() {
    return new Sampling { Temperature = temperature, Seed = unchecked((ulong)(seed + 1000003L * replies)) };
  }

  private AnswerOptions Options(Constraint constraint) {
    return new AnswerOptions { MaxTokens = checked((uint)maxTokens), Sampling = Sampling(), Constraint = constraint };
  }

  private void Begin(Answer begun, int before, bool isAction) {
    answer = begun;
    turns = before;
    reading = begun.Frames(text => arrived = text);
    acts = isAction;
    takenBack = false;
  }

  private void Read() {
    arrived = "";
    bool ended;
    try {
      ended = !reading.MoveNext();
    } catch (PumiceException problem) {
      answer = null;
      Fail(problem.Message);
      return;
    }
    Answer read = answer;
    if (ended) answer = null;  // events may make it speak again
    if (takenBack) {
      if (!ended) return;
      takenBack = false;
      session.RollBack(Math.Min(turns, session.Turns));  // it may not have begun
      return;
    }
    if (arrived.Length > 0 && !acts) sentence.Invoke(arrived.Trim());
    if (!ended) return;
    if (!acts) answered.Invoke(read.Text.Trim());
    else if (read.EndReason == EndReason.Stop) acted.Invoke(read.Text);
    else Fail("what it does took more than " + maxTokens + " tokens, or was interrupted");
  }

  private void Fail(string message) {
    Debug.LogError(name + ": " + message);
    failed.Invoke(message);
  }
}
}
