using System;
using System.IO;
using System.Threading;
using System.Threading.Tasks;
using UnityEngine;
using UnityEngine.Events;

namespace Pumice.Unity {

/// <summary>Texts, for the inspector.</summary>
[Serializable]
public sealed class TextEvent : UnityEvent<string> {}

/// <summary>From 0 to 1.</summary>
[Serializable]
public sealed class ProgressEvent : UnityEvent<float> {}

/// <summary>The model that a scene's characters share. It loads in the background, and then works for all of them once a
/// frame. All members belong to Unity's main thread.</summary>
[DefaultExecutionOrder(-100)]
public sealed class PumiceRuntime : MonoBehaviour {
  [Tooltip("A GGUF file; a relative path starts at StreamingAssets.")]
  public string modelPath = "";
  [Tooltip("How long the GPU may be busy for all characters together in a frame.")]
  public float millisecondsPerFrame = 2;
  [Tooltip("How much of its conversation a character has in mind.")]
  public int contextTokens = 2048;
  [Tooltip("How many characters speak at once; others wait for their turn.")]
  public int speakersAtOnce = 4;

  public ProgressEvent loading = new ProgressEvent();
  public UnityEvent ready = new UnityEvent();
  [Tooltip("There is no model, or polling failed: the reason.")]
  public TextEvent failed = new TextEvent();

  private readonly CancellationTokenSource stop = new CancellationTokenSource();
  private Task<Loaded> task;
  private Loaded loaded;
  private float progress;  // written by the task
  private string problem = "";

  public bool Ready { get { return loaded != null; } }

  internal Model Model { get { return loaded.Model; } }
  internal Engine Engine { get { return loaded.Engine; } }

  private void Start() {
    string path = Path.Combine(Application.streamingAssetsPath, modelPath);
    var device = new DeviceOptions { CacheDirectory = Path.Combine(Application.persistentDataPath, "pumice") };
    var engine = new EngineOptions {
      ContextTokens = checked((uint)contextTokens), Sequences = checked((uint)speakersAtOnce), Overflow = Overflow.Truncate
    };
    task = Task.Run(() => Load(path, device, engine));
  }

  private void Update() {
    if (loaded != null) {
      Poll();
    } else if (task != null) {
      loading.Invoke(Volatile.Read(ref progress));
      if (task.IsCompleted) TakeLoaded();
    }
  }

  private void OnDestroy() {
    stop.Cancel();
    if (loaded != null) loaded.Dispose();
    // Where it still loads, nobody waits for it.
    else if (task != null) task.ContinueWith(late => late.Result.Dispose(), TaskContinuationOptions.OnlyOnRanToCompletion);
    loaded = null;
    task = null;
  }

  private void TakeLoaded() {
    Task<Loaded> ended = task;
    task = null;
    if (ended.IsFaulted) {
      Report(ended.Exception.InnerException.Message);
      return;
    }
    loaded = ended.Result;
    loading.Invoke(1);
    ready.Invoke();
  }

  private void Poll() {
    try {
      loaded.Engine.Poll((ulong)(millisecondsPerFrame * 1000));
    } catch (PumiceException error) {  // a device that was lost, say: the next poll tries to get it back
      Report(error.Message);
    }
  }

  /// <summary>Once, however many frames it lasts.</summary>
  private void Report(string message) {
    if (message == problem) return;
    problem = message;
    Debug.LogError("Pumice: " + message);
    failed.Invoke(message);
  }

  private Loaded Load(string path, DeviceOptions deviceOptions, EngineOptions engineOptions) {
    var made = new Loaded();
    try {
      made.Device = new Device(deviceOptions);
      using (Loading model = made.Device.BeginLoad(path, new ModelOptions { Engine = engineOptions })) {
        LoadProgress now = model.Wait(0);
        for (; !now.Ended; now = model.Wait(20000)) {
          if (stop.IsCancellationRequested) model.Cancel();
          if (now.TotalBytes > 0) Volatile.Write(ref progress, 0.9f * now.DoneBytes / now.TotalBytes);
        }
        made.Model = model.Take();
      }
      Volatile.Write(ref progress, 0.9f);
      made.Engine = made.Model.CreateEngine(engineOptions);  // which compiles kernels, if none are cached
      made.Engine.Mode = Mode.Graphics;
      return made;
    } catch {
      made.Dispose();
      throw;
    }
  }

  private sealed class Loaded : IDisposable {
    internal Device Device;
    internal Model Model;
    internal Engine Engine;

    public void Dispose() {
      if (Engine != null) Engine.Dispose();
      if (Model != null) Model.Dispose();
      if (Device != null) Device.Dispose();
    }
  }
}
}
