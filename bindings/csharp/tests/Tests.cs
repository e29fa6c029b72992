// The C# sources on the built library, with the bundled model and an adapter. Exit 77 where there is no Vulkan device.
using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.IO.MemoryMappedFiles;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Pumice;

static class Tests {
  private const string Prompt = "Once upon a time";
  private static Device device;
  private static Model model;
  private static Engine engine;
  private static string path, adapter, text;

  static int Main(string[] arguments) {
    try {
      device = new Device();
    } catch (PumiceException problem) {
      Console.WriteLine("no usable Vulkan device: " + problem.Message);
      return problem.Status == Status.NoDevice ? 77 : 1;
    }
    path = arguments[0];
    adapter = arguments[1];
    model = device.Load(path);
    engine = model.CreateEngine(new EngineOptions { Sequences = 4, ContextTokens = 512 });
    text = engine.Generate(Prompt, Tokens(24)).Wait().Text;
    var tests = new Action[] { WhatFailsSaysWhatAndWhy, PiecesAreTheText, InfosAndTokens, ManyFromManyThreads, Async,
                               Constraints, SessionsRememberAndAreSaved, SessionsGoBack,
                               ModelsThatAreLoadedMeanwhile, ModelsInMemory, AdaptersAreNamedAndScaled, AnswersInParts,
                               ChoicesAndScores, GuessesAndLatencies, Vectors, EstimatesAndTheSelfTest, CancellingAndStops,
                               Frames, ClosedHandles };
    int failed = 0;
    foreach (Action test in tests) {
      try {
        test();
        Console.WriteLine("ok " + test.Method.Name);
      } catch (Exception problem) {
        Console.WriteLine("FAILED " + test.Method.Name + ": " + problem);
        ++failed;
      }
    }
    engine.Dispose();
    model.Dispose();
    device.Dispose();
    return failed == 0 ? 0 : 1;
  }

  private static void WhatFailsSaysWhatAndWhy() {
    var problem = Throws<PumiceException>(() => new Device(new DeviceOptions { Selector = "no such device" }));
    Equal(problem.Status, Status.NoDevice);
    True(problem.Message.Contains("no such device"), problem.Message);
    Equal(Throws<PumiceException>(() => device.Load("/nowhere/ä.gguf")).Status, Status.BadFile);
    Equal(Throws<PumiceException>(() => engine.Generate(Prompt, Tokens(100000))).Status, Status.DoesNotFit);
    Equal(Throws<PumiceException>(() => engine.Restore(new byte[] { 1, 2, 3 })).Status, Status.BadFile);
    var fox = new ModelOptions { Adapters = new Dictionary<string, Adapter> { { "fox", new Adapter(path) } } };
    problem = Throws<PumiceException>(() => device.Load(path, fox));
    True(problem.Message.Contains("adapter fox: not a LoRA file"), problem.Message);
    problem = Throws<PumiceException>(() => engine.OpenSession(new SessionOptions { Adapter = "fox" }));
    True(problem.Message.Contains("unknown adapter \"fox\""), problem.Message);
  }

  private static void PiecesAreTheText() {
    var answer = engine.Generate(Prompt, new AnswerOptions { MaxTokens = 24, TopLogProbs = 2 });
    var pieces = answer.ToList();
    True(pieces.Count > 4, "pieces");
    Equal(string.Concat(pieces), text);
    Equal(answer.Text, text);
    Equal(answer.EndReason, EndReason.Length);
    Equal(answer.Usage.GeneratedTokens, 24);
    Equal(answer.Tokens.Length, 24);
    Equal(answer.LogProbs.Length, 24);
    Equal(answer.LogProbs[3].Likeliest.Count, 2);
    Equal(answer.LogProbs[3].Likeliest[0].Token, answer.Tokens[3]);
    True(answer.LogProbs[3].Likeliest[1].LogProb <= answer.LogProbs[3].LogProb, "the likeliest first");
    Equal(model.Detokenize(answer.Tokens).Trim(), text.Trim());
  }

  private static void InfosAndTokens() {
    True(Device.All().Any(one => one.Name == device.Info.Name && one.Uuid == device.Info.Uuid), "among all devices");
    True(model.Info.Vocabulary > 100, "vocabulary");
    Equal(engine.Generate(model.Tokenize(Prompt), Tokens(24)).Wait().Text, text);
    Equal(model.Tokenize("", false).Length, 0);
    True(engine.Stats["steps"] > 0, "steps");
    True(engine.Prewarm(0), "all kernels");
    True(device.Log().All(one => one.Level != LogLevel.None && one.Text.Length > 0), "log");
    Equal(Library.Version, "0.1.0");
  }

  private static void ManyFromManyThreads() {
    var answers = Enumerable.Range(0, 6).Select(_ => engine.Generate(Prompt, Tokens(24))).ToList();
    var threads = answers.Select(one => new Thread(() => one.Wait())).ToList();
    threads.ForEach(one => one.Start());
    threads.ForEach(one => True(one.Join(60000), "ended"));
    answers.ForEach(one => Equal(one.Text, text));
  }

  private static void Async() {
    Func<Task<string>> read = async () => {
      var answer = engine.Generate(Prompt, Tokens(24));
      string all = "";
      for (string piece = await answer.NextAsync(); piece != null; piece = await answer.NextAsync()) all += piece;
      return all;
    };
    foreach (string one in Task.WhenAll(read(), read()).Result) Equal(one, text);
    var source = new CancellationTokenSource();
    var cancelled = engine.Generate(Prompt, Tokens(300));
    var waiting = cancelled.WaitAsync(source.Token);
    source.Cancel();
    True(Throws<AggregateException>(() => waiting.Wait()).InnerException is OperationCanceledException, "cancelled");
    Equal(cancelled.EndReason, EndReason.Cancelled);
  }

  private static void Constraints() {
    using (var constraint = model.Compile(ConstraintKind.Regex, "yes|no")) {
      string said = engine.Generate("So? ", new AnswerOptions { Constraint = constraint }).Wait().Text;
      True(said == "yes" || said == "no", said);
    }
    using (var constraint = model.Compile(ConstraintKind.JsonSchema, "{\"const\": [1, true]}"))
      Equal(engine.Generate("So? ", new AnswerOptions { Constraint = constraint }).Wait().Text.Replace(" ", ""), "[1,true]");
    using (var constraint = model.Compile(ConstraintKind.Grammar, "root ::= \"maybe\""))
      Equal(engine.Generate("So? ", new AnswerOptions { Constraint = constraint }).Wait().Text, "maybe");
    Equal(Throws<PumiceException>(() => model.Compile(ConstraintKind.Grammar, "root ::= missing")).Status, Status.InvalidArgument);
  }

  private static void SessionsRememberAndAreSaved() {
    var options = new SessionOptions { Sampling = new Sampling { Seed = 3, Temperature = 0.7f }, System = "Be kind." };
    byte[] saved;
    string then;
    using (var session = engine.OpenSession(options)) {
      var first = session.Say("A dog ran.", Tokens(8)).Wait();
      saved = session.Save();
      var second = session.Say("Then", Tokens(8)).Wait();
      True(second.Usage.PromptTokens > first.Usage.PromptTokens, "remembered");
      Equal(session.Tokens.Length, second.Usage.PromptTokens + 8);
      then = second.Text;
    }
    using (var again = engine.Restore(saved)) Equal(again.Say("Then", Tokens(8)).Wait().Text, then);
  }

  private static void SessionsGoBack() {
    using (var session = engine.OpenSession()) {
      session.Say("Tell me of a dog.", Tokens(6)).Wait();
      string reply = session.Say("And of a cat?", Tokens(6)).Wait().Text;
      Equal(session.Turns, 2);
      session.RollBack(1, true);
      Equal(session.GoOn(null, Tokens(6)).Wait().Text, reply);
      Equal(Throws<PumiceException>(() => session.RollBack(3)).Status, Status.NotFound);
      session.RollBack(0);
      Equal(session.Turns, 0);
    }
  }

  private static void ModelsThatAreLoadedMeanwhile() {
    var options = new EngineOptions { ContextTokens = 64 };
    using (var loading = device.BeginLoad(path, new ModelOptions { Engine = options })) {
      LoadProgress progress = loading.Wait(1000);
      for (; !progress.Ended; progress = loading.Wait(1000)) True(progress.DoneBytes <= progress.TotalBytes, "within");
      Equal(progress.DoneBytes, progress.TotalBytes);
      loading.Cancel();
      using (var loaded = loading.Take())
      using (var other = loaded.CreateEngine(options)) Equal(other.Generate(Prompt, Tokens(24)).Wait().Text, text);
      Equal(Throws<PumiceException>(() => loading.Take()).Status, Status.NotFound);
    }
    using (var loading = device.BeginLoad("/nowhere/ä.gguf"))
      Equal(Throws<PumiceException>(() => loading.Take()).Status, Status.BadFile);
  }

  private static void ModelsInMemory() {
    using (var file = MemoryMappedFile.CreateFromFile(path, FileMode.Open))
    using (var view = file.CreateViewAccessor(0, 0, MemoryMappedFileAccess.Read)) {
      var options = new ModelOptions {
        Memory = view.SafeMemoryMappedViewHandle.DangerousGetHandle(), MemoryBytes = (ulong)new FileInfo(path).Length
      };
      using (var mapped = device.Load("", options))
      using (var other = mapped.CreateEngine(new EngineOptions { ContextTokens = 64 }))
        Equal(other.Generate(Prompt, Tokens(24)).Wait().Text, text);
    }
  }

  private static void AdaptersAreNamedAndScaled() {
    var options = new ModelOptions { Adapters = new Dictionary<string, Adapter> {
      { "whole", new Adapter(adapter) }, { "again", new Adapter { Path = adapter, Scale = 1 } },
      { "faint", new Adapter(adapter, 1e-9f) } } };
    using (var adapted = device.Load(path, options))
    using (var other = adapted.CreateEngine(new EngineOptions { ContextTokens = 64, Sequences = 4 })) {
      Func<string, Answer> say = name => other.Generate(Prompt, new AnswerOptions {
        MaxTokens = 24, Alone = new SessionOptions { Adapter = name, Priority = 1, ServiceClass = ServiceClass.Batch } });
      Answer none = say(null), whole = say("whole"), again = say("again"), faint = say("faint");
      Equal(none.Wait().Text, text);
      Equal(faint.Wait().Text, text);
      True(whole.Wait().Text != text, "another text");
      Equal(again.Wait().Text, whole.Text);
      using (var session = other.OpenSession(new SessionOptions { Adapter = "whole" }))
        Equal(session.GoOn(Prompt, Tokens(24)).Wait().Text, whole.Text);
    }
    options.Adapters["nothing"] = new Adapter(adapter, 0);
    Throws<ArgumentException>(() => device.Load(path, options));
  }

  private static void AnswersInParts() {
    const string Tools = "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": \"object\", " +
      "\"properties\": {\"n\": {\"enum\": [1, 2]}}, \"required\": [\"n\"], \"additionalProperties\": false}}}]";
    const string Template = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}" +
      "{% for m in messages %}{{ m.role }}: {{ m.content }}" +
      "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}" +
      "{% if enable_thinking %}<think>\n{% endif %}";
    using (var chat = device.Load(path, new ModelOptions { ChatTemplate = Template }))
    using (var other = chat.CreateEngine(new EngineOptions { ContextTokens = 512 })) {
      True(chat.Info.HasChatTemplate, "template");
      using (var session = other.OpenSession()) {
        var called = session.Ask("[{\"role\": \"user\", \"content\": \"Hi\"}]", new AnswerOptions {
          ToolsJson = Tools, ToolChoice = "look", MaxTokens = 100 }).Wait();
        Equal(called.Calls.Length, 1);
        ToolCall call = called.Calls[0];
        True(call.Name == "look" && call.Complete && called.Content == "", "one call");
        string arguments = call.Arguments.Replace(" ", "");
        True(arguments == "{\"n\":1}" || arguments == "{\"n\":2}", arguments);
        var told = session.Ask("[{\"role\": \"tool\", \"tool_call_id\": \"" + call.Id + "\", \"content\": \"A cat\"}]",
                               new AnswerOptions { ToolsJson = Tools, MaxTokens = 8 }).Wait();
        Equal(told.Content.Trim(), told.Text.Trim());
      }
      var thought = other.Ask("[{\"role\": \"user\", \"content\": \"upon\"}]", new AnswerOptions {
        TemplateVariablesJson = "{\"enable_thinking\": true}", MaxTokens = 8 }).Wait();
      Equal(thought.Reasoning.Trim(), thought.Text.Trim());
      Equal(thought.Content, "");
      Equal(Throws<PumiceException>(() => other.Generate("Hi", new AnswerOptions { ToolsJson = Tools })).Status,
            Status.InvalidArgument);
      using (var session = other.OpenSession(new SessionOptions { System = "Be kind." }))
        Throws<InvalidOperationException>(() => session.Ask("[]"));
    }
  }

  private static void ChoicesAndScores() {
    Func<ulong, Answer, Answer> choice = (seed, first) => engine.Generate(Prompt, new AnswerOptions {
      MaxTokens = 24, Sampling = new Sampling { Temperature = 0.9f, Seed = seed }, SharesPromptWith = first });
    Answer one = choice(1, null), two = choice(2, one);
    True(one.Wait().Text != two.Wait().Text, "two choices");
    Equal(two.Usage.CachedTokens, two.Usage.PromptTokens);
    Equal(choice(2, null).Wait().Text, two.Text);
    Answer scored = engine.Generate(Prompt, new AnswerOptions { MaxTokens = 24, Scores = true }).Wait();
    Equal(scored.Text, text);
    uint[] tokens = model.Tokenize(Prompt);
    True(scored.Scores.Select(score => score.Token).SequenceEqual(tokens.Skip(1)), "a score of each token but the first");
    True(scored.Scores.All(score => score.LogProb <= 0), "logarithms");
    Equal(scored.Tokens.Length, 24);
    True(scored.ComputedTokens >= tokens.Length + 23, "prompt and answer");
  }

  private static void GuessesAndLatencies() {
    using (var guessing = model.CreateEngine(new EngineOptions { DraftModel = path, Aging = TimeSpan.FromSeconds(9) })) {
      var answer = guessing.Generate(Prompt, new AnswerOptions {
        MaxTokens = 24, Speculation = Speculation.Draft, MaxDraftTokens = 1 }).Wait();
      Equal(answer.Text, text);
      True(answer.Usage.AcceptedTokens > 0 && answer.Usage.DraftedTokens >= answer.Usage.AcceptedTokens, "guesses");
      True(answer.Usage.DraftedTokens <= 12, "one a step");
      Latency first = guessing.GetLatency(LatencyKind.FirstToken), total = guessing.GetLatency(LatencyKind.Total);
      Equal(first.Count, 1ul);
      True(total.Max > first.Max && first.P50 > TimeSpan.Zero, "the first token comes before the last");
    }
    var badly = new EngineOptions { PrefixStore = "/nowhere" };
    True(Throws<PumiceException>(() => model.CreateEngine(badly)).Message.Contains("cache_host_bytes"), "host memory is needed");
  }

  private static void Vectors() {
    using (var embedding = device.Load(path, new ModelOptions { Embeds = true, Pooling = "mean" }))
    using (var embedder = embedding.CreateEmbedder(new EmbedderOptions { TextTokens = 64 })) {
      float[][] vectors = embedder.Embed(new[] { "The dog ran home.", "A cat slept.", "The dog ran home." });
      True(vectors.Length == 3 && vectors.All(one => one.Length == embedder.Width), "widths");
      Func<int, float> with = other => vectors[0].Zip(vectors[other], (x, y) => x * y).Sum();
      True(Math.Abs(with(2) - 1) < 1e-4 && with(1) < 0.999, "cosines");
      Equal(embedder.TextTokens, 64);
      Equal(embedder.Embed(new string[0]).Length, 0);
    }
  }

  private static void EstimatesAndTheSelfTest() {
    Func<uint, MemoryEstimate> estimate = n => device.Estimate(path, new ModelOptions {
      Engine = new EngineOptions { ContextTokens = 256, Sequences = n } });
    MemoryEstimate small = estimate(1), large = estimate(4);
    True(small.Fits && small.TotalBytes >= small.WeightBytes + small.KvBytes, "fits");
    Equal(small.ContextTokens, 256);
    Equal(large.KvBytes, 4 * small.KvBytes);
    SelfTest result = device.RunSelfTest(new[] { "rms_norm" }, TimeSpan.FromMinutes(5));
    True(result.Passed > 0 && result.Failed == 0 && result.Errors == 0, "right");
    Equal(Throws<PumiceException>(() => device.RunSelfTest(new[] { "no such operation" })).Status, Status.InvalidArgument);
  }

  private static void CancellingAndStops() {
    var answer = engine.Generate(Prompt, Tokens(300));
    answer.Next();
    answer.Cancel();
    Equal(answer.Wait().EndReason, EndReason.Cancelled);
    answer.Cancel();
    string word = text.Split(' ')[2];
    var stopped = engine.Generate(Prompt, new AnswerOptions { MaxTokens = 24, Stops = new[] { "§", word } }).Wait();
    Equal(stopped.Text, text.Substring(0, text.IndexOf(word, StringComparison.Ordinal)));
    Equal(stopped.EndReason, EndReason.StopText);
    uint likeliest = engine.Generate(Prompt, Tokens(1)).Wait().Tokens[0];
    var banned = new Sampling { LogitBias = new System.Collections.Generic.Dictionary<uint, float> {
      { likeliest, float.NegativeInfinity } } };
    True(engine.Generate(Prompt, new AnswerOptions { MaxTokens = 1, Sampling = banned }).Wait().Tokens[0] != likeliest, "banned");
  }

  private static void Frames() {
    var answer = engine.Generate(Prompt, Tokens(24));
    string read = "";
    IEnumerator work = engine.Frames(1000), reading = answer.Frames(piece => read += piece);
    int frames = 0;
    for (; reading.MoveNext(); ++frames) work.MoveNext();
    Equal(read, text);
    True(frames > 4, "over many frames");
  }

  private static void ClosedHandles() {
    var closed = model.CreateEngine(new EngineOptions { ContextTokens = 64 });
    var answer = closed.Generate(Prompt, Tokens(4));
    var session = closed.OpenSession();
    closed.Dispose();
    closed.Dispose();
    session.Dispose();
    Throws<ObjectDisposedException>(() => closed.Generate(Prompt));
    Throws<ObjectDisposedException>(() => answer.Next());
    True(!closed.Frames(1000).MoveNext(), "no more frames");
  }

  private static AnswerOptions Tokens(uint count) { return new AnswerOptions { MaxTokens = count }; }

  private static void True(bool holds, string what) {
    if (!holds) throw new Exception("not so: " + what);
  }

  private static void Equal<T>(T value, T expected) {
    if (!Equals(value, expected)) throw new Exception("'" + value + "' is not '" + expected + "'");
  }

  private static T Throws<T>(Action action) where T : Exception {
    try {
      action();
    } catch (T expected) {
      return expected;
    }
    throw new Exception("nothing was thrown");
  }
}
