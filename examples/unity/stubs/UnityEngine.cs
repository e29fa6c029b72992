// What the components use of the engine's API, for the tests: names and signatures are the engine's, and Scene does what the
// engine does with objects, once a frame.
using System;
using System.Collections.Generic;
using System.Reflection;

namespace UnityEngine {

public class Object {
  public string name = "";
}

public class Component : Object {
  public GameObject gameObject { get; internal set; }
}

public class Behaviour : Component {
  public bool enabled { get; set; }

  public Behaviour() { enabled = true; }
}

public class MonoBehaviour : Behaviour {}

public sealed class GameObject : Object {
  public GameObject(string name) { this.name = name; }

  public T AddComponent<T>() where T : MonoBehaviour, new() {
    var component = new T { name = name, gameObject = this };
    Scene.Add(component);
    return component;
  }
}

public static class Application {
  public static string streamingAssetsPath { get; set; }
  public static string persistentDataPath { get; set; }
}

public static class Debug {
  public static void Log(object message) { Console.WriteLine(message); }
  public static void LogError(object message) { Console.WriteLine("error: " + message); }
}

[AttributeUsage(AttributeTargets.Class)]
public sealed class DefaultExecutionOrder : Attribute {
  public int order { get; private set; }

  public DefaultExecutionOrder(int order) { this.order = order; }
}

[AttributeUsage(AttributeTargets.Field)]
public sealed class TooltipAttribute : Attribute {
  public TooltipAttribute(string tooltip) {}
}

[AttributeUsage(AttributeTargets.Field)]
public sealed class TextAreaAttribute : Attribute {
  public TextAreaAttribute(int minLines, int maxLines) {}
}

/// <summary>Not the engine's: what it does unseen.</summary>
public static class Scene {
  private static readonly List<MonoBehaviour> waiting = new List<MonoBehaviour>(), running = new List<MonoBehaviour>();

  internal static void Add(MonoBehaviour one) { waiting.Add(one); }

  public static void Frame() {
    while (waiting.Count > 0) {
      MonoBehaviour one = waiting[0];
      waiting.RemoveAt(0);
      Call(one, "Start");
      running.Add(one);
    }
    running.Sort((one, other) => Order(one).CompareTo(Order(other)));
    foreach (MonoBehaviour one in running.ToArray())
      if (one.enabled) Call(one, "Update");
  }

  /// <summary>Its end, with everything in it.</summary>
  public static void Unload() {
    foreach (MonoBehaviour one in running) Call(one, "OnDestroy");
    running.Clear();
    waiting.Clear();
  }

  private static int Order(MonoBehaviour one) {
    var order = (DefaultExecutionOrder)Attribute.GetCustomAttribute(one.GetType(), typeof(DefaultExecutionOrder));
    return order == null ? 0 : order.order;
  }

  private static void Call(MonoBehaviour one, string message) {
    MethodInfo method = one.GetType().GetMethod(message, BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.Public);
    if (method == null) return;
    try {
      method.Invoke(one, null);
    } catch (TargetInvocationException thrown) {
      System.Runtime.ExceptionServices.ExceptionDispatchInfo.Capture(thrown.InnerException).Throw();
    }
  }
}
}

namespace UnityEngine.Events {

public delegate void UnityAction();
public delegate void UnityAction<T>(T value);

public class UnityEvent {
  private UnityAction called = () => {};

  public void AddListener(UnityAction call) { called += call; }
  public void Invoke() { called(); }
}

public class UnityEvent<T> {
  private UnityAction<T> called = _ => {};

  public void AddListener(UnityAction<T> call) { called += call; }
  public void Invoke(T value) { called(value); }
}
}
