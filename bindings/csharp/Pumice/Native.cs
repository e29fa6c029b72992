using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;

namespace Pumice {

/// <summary>What a call failed with. The message says what was wrong.</summary>
public sealed class PumiceException : Exception {
  public Status Status { get; private set; }

  internal PumiceException(Status status, string message) : base(message) { Status = status; }
}

/// <summary>Memory that structs point to, as long as a call lasts.</summary>
internal sealed class Scope : IDisposable {
  private readonly List<IntPtr> allocated = new List<IntPtr>();

  internal IntPtr Bytes(byte[] bytes) {
    if (bytes == null || bytes.Length == 0) return IntPtr.Zero;
    IntPtr memory = Allocate(bytes.Length);
    Marshal.Copy(bytes, 0, memory, bytes.Length);
    return memory;
  }

  internal pumice_string String(string text) {
    byte[] bytes = text == null ? null : Encoding.UTF8.GetBytes(text);
    return new pumice_string { data = Bytes(bytes), length = (UIntPtr)(ulong)(bytes == null ? 0 : bytes.Length) };
  }

  internal IntPtr Struct<T>(T value) where T : struct { return Structs(new[] { value }); }

  internal IntPtr Structs<T>(IList<T> values) where T : struct {
    if (values.Count == 0) return IntPtr.Zero;
    int size = Marshal.SizeOf(typeof(T));
    IntPtr memory = Allocate(checked(size * values.Count));
    for (int i = 0; i < values.Count; ++i) Marshal.StructureToPtr(values[i], memory + i * size, false);
    return memory;
  }

  public void Dispose() {
    foreach (IntPtr memory in allocated) Marshal.FreeHGlobal(memory);
    allocated.Clear();
  }

  private IntPtr Allocate(int size) {
    IntPtr memory = Marshal.AllocHGlobal(size);
    allocated.Add(memory);
    return memory;
  }
}

internal static class Native {
  internal static UIntPtr SizeOf<T>() where T : struct { return (UIntPtr)(ulong)Marshal.SizeOf(typeof(T)); }

  internal static void Check(Status status) {
    if (status != Status.Ok) throw new PumiceException(status, Text(Abi.pumice_last_error()));
  }

  internal static uint Bool(bool value) { return value ? 1u : 0u; }

  /// <summary>At least one, unless it is zero, which leaves a default.</summary>
  internal static ulong Microseconds(TimeSpan time) {
    const long TicksOfOne = TimeSpan.TicksPerMillisecond / 1000;
    return checked((ulong)((time.Ticks + TicksOfOne - 1) / TicksOfOne));
  }

  internal static TimeSpan Duration(ulong microseconds) {
    return TimeSpan.FromTicks(checked((long)microseconds * (TimeSpan.TicksPerMillisecond / 1000)));
  }

  /// <summary>Of UTF-8 up to its NUL.</summary>
  internal static string Text(IntPtr text) {
    int length = 0;
    while (Marshal.ReadByte(text, length) != 0) ++length;
    return Text(text, length);
  }

  internal static string Text(pumice_string text) { return Text(text.data, checked((int)text.length)); }

  internal static string Text(byte[] text) { return Encoding.UTF8.GetString(text, 0, Array.IndexOf(text, (byte)0)); }

  internal static byte[] Bytes(IntPtr data, int length) {
    byte[] bytes = new byte[length];
    if (length > 0) Marshal.Copy(data, bytes, 0, length);
    return bytes;
  }

  /// <summary>The structs that an array of the library's holds.</summary>
  internal static T[] Structs<T>(IntPtr data, UIntPtr count) where T : struct {
    int size = Marshal.SizeOf(typeof(T));
    var values = new T[checked((int)count)];
    for (int i = 0; i < values.Length; ++i) values[i] = (T)Marshal.PtrToStructure(data + i * size, typeof(T));
    return values;
  }

  private static string Text(IntPtr data, int length) { return Encoding.UTF8.GetString(Bytes(data, length)); }

  internal delegate Status Fill<T>(T[] values, UIntPtr capacity, out UIntPtr count);

  /// <summary>What `fill` gives, asked for its size first.</summary>
  internal static T[] Counted<T>(Fill<T> fill, T initial = default(T)) {
    T[] values = new T[0];
    while (true) {
      UIntPtr count;
      Status status = fill(values.Length == 0 ? null : values, (UIntPtr)(ulong)values.Length, out count);
      if (status != Status.TooSmall) Check(status);
      int n = checked((int)count);
      if (n <= values.Length) {
        Array.Resize(ref values, n);
        return values;
      }
      values = new T[n];
      for (int i = 0; i < n; ++i) values[i] = initial;
    }
  }
}
}
