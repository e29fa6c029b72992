// Scenes with characters, driven frame by frame with the bundled model. Exit 77 where there is no Vulkan device.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;
using System.Threading;
using Pumice;
using Pumice.Unity;
using UnityEngine;

static class Frames {
  private const float Budget = 4;
  private const string Call =
    "^\\s*{\\s*\"name\"\\s*:\\s*\"walk\"\\s*,\\s*\"arguments\"\\s*:\\s*{\\s*\"where\"\\s*:\\s*\"(home|park)\"\\s*}\\s*}\\s*$";
  private static readonly List<double> milliseconds = new List<double>();
  private static PumiceRuntime runtime;

  static int Main(string[] arguments) {
    Application.streamingAssetsPath = arguments[0];
    Application.persistentDataPath = arguments[1];
    try {
      new Device().Dispose();
    } catch (PumiceException problem) {
      Console.WriteLine("no usable Vulkan device: " + problem.Message);
      return problem.Status == Status.NoDevice ? 77 : 1;
    }
    var tests = new Action[] { LoadsMeanwhile, AnswersWithinTheBudgetBySentences, TakesBack, SavesAndLoads, Acts, AsTheReadmeHasIt,
                               SaysWhatIsWrong, EndsWhileItLoads };
    int failed = 0;
    foreach (Action test in tests) {
      try {
        var watch = Stopwatch.StartNew();
        test();
        Console.WriteLine("ok " + test.Method.Name + ", " + watch.Elapsed.TotalSeconds.ToString("F1") + " s");
      } catch (Exception problem) {
        Console.WriteLine("FAILED " + test.Method.Name + ": " + problem);
        ++failed;
      }
    }
    return failed == 0 ? 0 : 1;
  }

  private static void LoadsMeanwhile() {
    var progress = new List<float>();
    bool ready = false;
    runtime = Runtime("pumice-stories.gguf");
    runtime.loading.AddListener(progress.Add);
    runtime.ready.AddListener(() => ready = true);
    var early = Character();
    Throws<InvalidOperationException>(() => early.Say("Hello."));
    Until(() => early.Ready);
    True(ready && runtime.Ready, "the event came");
    True(progress.Count > 2, "frames went on");
    True(progress.SequenceEqual(progress.OrderBy(one => one)) && progress.Last() == 1, "from 0 to 1");
    Throws<InvalidOperationException>(() => early.Act("Go."));
    Throws<InvalidOperationException>(() => early.TakeBack());
  }

  private static void AnswersWithinTheBudgetBySentences() {
    var character = Ready(Character());
    character.maxTokens = 120;
    var sentences = new List<string>();
    string whole = null;
    character.sentence.AddListener(sentences.Add);
    character.answered.AddListener(text => whole = text);
    milliseconds.Clear();
    character.Say("Tell me of a dog.");
    Throws<PumiceException>(() => character.Say("And of a cat."));
    Until(() => !character.Speaking);
    True(sentences.Count > 1, "several sentences");
    foreach (string one in sentences.Take(sentences.Count - 1))
      True(Regex.IsMatch(one, "[.!?][\"”]?$"), "a whole sentence: " + one);
    Equal(Words(string.Join(" ", sentences.ToArray())), Words(whole));
    milliseconds.Sort();
    True(milliseconds.Count > 20, "over many frames");
    Console.WriteLine("frames spent " + milliseconds[milliseconds.Count / 2] + " ms in the middle");
    True(milliseconds[milliseconds.Count / 10] < Budget, "most frames wait, for " + milliseconds[milliseconds.Count / 10] + " ms");

    // What a frame may not take is left for the next ones.
    string question = string.Join(" ", Enumerable.Repeat("Tell me of a dog and of a cat.", 8).ToArray());
    int[] frames = new[] { 1000f, 0.01f }.Select(budget => {
      var one = Ready(Character());
      one.maxTokens = 1;
      runtime.millisecondsPerFrame = budget;
      milliseconds.Clear();
      one.Say(budget + " " + question);
      Until(() => !one.Speaking);
      return milliseconds.Count;
    }).ToArray();
    runtime.millisecondsPerFrame = Budget;
    True(frames[1] > 2 * frames[0], frames[0] + " frames became " + frames[1]);
  }

  private static void TakesBack() {
    var character = Ready(Character());
    string first = Answer(character, "Tell me of a dog.");
    string second = Answer(character, "And of a cat?");
    character.TakeBack();
    Equal(Answer(character, "And of a cat?"), second);
    // One that is being given too.
    character.TakeBack();
    int sentences = 0;
    character.sentence.AddListener(_ => ++sentences);
    character.Say("And of a bird?");
    for (int i = 0; i < 5; ++i) Frame();
    True(character.Speaking, "it speaks");
    character.TakeBack();
    int said = sentences;
    Until(() => !character.Speaking);
    Equal(sentences, said);
    Equal(Answer(character, "And of a cat?"), second);
    string again = null;
    character.answered.AddListener(text => again = text);
    character.AnswerAgain();
    Until(() => !character.Speaking);
    True(again != second && again.Length > 0, "another answer");
    character.TakeBack();
    character.TakeBack();
    Equal(Answer(character, "Tell me of a dog."), first);
  }

  private static void SavesAndLoads() {
    var character = Ready(Character());
    var other = Ready(Character());
    byte[] before = character.Save();
    string first = Answer(character, "Tell me of a dog.");
    byte[] saved = character.Save();
    string second = Answer(character, "And then?");
    other.Load(saved);
    Equal(Answer(other, "And then?"), second);
    // One that was told nothing yet has its persona.
    other.Load(before);
    Equal(Answer(other, "Tell me of a dog."), first);
    // While it speaks: the other one finishes what it was saying.
    character.Load(before);
    string begun = "", rest = "";
    character.sentence.AddListener(text => begun += " " + text);
    other.answered.AddListener(text => rest = text);
    character.Say("Tell me of a dog.");
    Until(() => begun.Length > 0);
    True(character.Speaking, "it speaks");
    other.Load(character.Save());
    Until(() => !character.Speaking);
    other.GoOn();
    Until(() => !other.Speaking);
    True(Words(first).StartsWith(Words(begun), StringComparison.Ordinal), begun);
    True(rest.Length > 0, "the rest of it");
    Throws<PumiceException>(() => other.Load(new byte[] { 1, 2, 3 }));
    character.Say("What else?");
    character.Interrupt();
    Until(() => !character.Speaking);
  }

  private static void Acts() {
    var character = Character();
    character.tools = new[] { Walk(), new PumiceTool { name = "say \"hello\"", description = "Greets." } };
    Ready(character);
    string call = null, failure = null;
    character.acted.AddListener(json => call = json);
    character.failed.AddListener(text => failure = text);
    character.sentence.AddListener(text => { throw new Exception("said " + text); });
    character.maxTokens = 80;
    character.Act("Go somewhere.");
    Until(() => !character.Speaking);
    Console.WriteLine("acted " + call);
    True(Regex.IsMatch(call, Call) || call.Contains("\"say \\\"hello\\\"\""), call);
    character.maxTokens = 3;
    character.Act("Go home.");
    Until(() => failure != null);
    True(failure.Contains("3 tokens"), failure);
  }

  private static void AsTheReadmeHasIt() {
    Scene.Unload();
    var said = new StringWriter();
    TextWriter console = Console.Out;
    Console.SetOut(said);
    try {
      new GameObject("Tavern").AddComponent<Tavern>();
      Until(() => Regex.Matches(said.ToString(), " does ").Count == 2);
    } finally {
      Console.SetOut(console);
      Scene.Unload();
    }
    string lines = said.ToString();
    Console.Write(lines);
    True(lines.Contains("cat: ") && lines.Contains("dog: "), "both spoke");
    foreach (Match one in Regex.Matches(lines, "does (.*)")) True(Regex.IsMatch(one.Groups[1].Value, Call), one.Value);
  }

  private static void SaysWhatIsWrong() {
    string failure = null;
    runtime = Runtime("missing.gguf");
    runtime.failed.AddListener(text => failure = text);
    Until(() => failure != null);
    True(failure.Contains("missing.gguf"), failure);
    Scene.Unload();
    runtime = Runtime("pumice-stories.gguf");
    var character = Character();
    character.tools = new[] { new PumiceTool { name = "walk", parameters = "{\"type\": 7}" } };
    failure = null;
    character.failed.AddListener(text => failure = text);
    Until(() => failure != null);
    True(!character.Ready && failure.Contains("type"), failure);
    Scene.Unload();
    Throws<InvalidOperationException>(() => character.Say("Hello."));
  }

  private static void EndsWhileItLoads() {
    Runtime("pumice-stories.gguf");
    Frame();
    Scene.Unload();
    Frame();
  }

  private static PumiceRuntime Runtime(string model) {
    var made = new GameObject("Model").AddComponent<PumiceRuntime>();
    made.modelPath = model;
    made.millisecondsPerFrame = Budget;
    made.contextTokens = 512;
    return made;
  }

  private static PumiceCharacter Character() {
    var character = new GameObject("Fox").AddComponent<PumiceCharacter>();
    character.runtime = runtime;
    character.persona = "You are a fox.";
    character.maxTokens = 40;
    return character;
  }

  private static PumiceTool Walk() {
    return new PumiceTool {
      name = "walk", description = "Goes somewhere.",
      parameters = "{\"type\": \"object\", \"properties\": {\"where\": {\"enum\": [\"home\", \"park\"]}}, " +
                   "\"required\": [\"where\"], \"additionalProperties\": false}"
    };
  }

  private static PumiceCharacter Ready(PumiceCharacter character) {
    Until(() => character.Ready);
    return character;
  }

  private static string Answer(PumiceCharacter character, string question) {
    string answer = null;
    UnityEngine.Events.UnityAction<string> take = text => answer = answer ?? text;
    character.answered.AddListener(take);
    character.Say(question);
    Until(() => !character.Speaking);
    return answer;
  }

  private static void Frame() {
    var watch = Stopwatch.StartNew();
    Scene.Frame();
    milliseconds.Add(watch.Elapsed.TotalMilliseconds);
    Thread.Sleep(2);  // what else a frame does
  }

  private static void Until(Func<bool> holds) {
    var watch = Stopwatch.StartNew();
    while (!holds()) {
      if (watch.Elapsed.TotalSeconds > 200) throw new Exception("it takes too long");
      Frame();
    }
  }

  private static string Words(string text) { return Regex.Replace(text, "\\s+", " ").Trim(); }

  private static void True(bool holds, string what) {
    if (!holds) throw new Exception("not so: " + what);
  }

  private static void Equal<T>(T value, T expected) {
    if (!Equals(value, expected)) throw new Exception("'" + value + "' is not '" + expected + "'");
  }

  private static void Throws<T>(Action action) where T : Exception {
    try {
      action();
    } catch (T) {
      return;
    }
    throw new Exception("nothing was thrown");
  }
}
