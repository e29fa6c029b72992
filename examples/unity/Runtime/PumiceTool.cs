using System;
using System.Linq;
using UnityEngine;

namespace Pumice.Unity {

/// <summary>Something that a character can do.</summary>
[Serializable]
public sealed class PumiceTool {
  public string name = "";
  [Tooltip("For the character: what it does, and when.")]
  public string description = "";
  [TextArea(3, 20), Tooltip("A JSON Schema of its arguments.")]
  public string parameters = "{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}";

  /// <summary>Of a call of one of them.</summary>
  internal static string Schema(PumiceTool[] tools) {
    var calls = tools.Select(tool => "{\"type\": \"object\", \"properties\": {\"name\": {\"const\": " + Quoted(tool.name) +
                                     "}, \"arguments\": " + tool.parameters +
                                     "}, \"required\": [\"name\", \"arguments\"], \"additionalProperties\": false}");
    return "{\"anyOf\": [" + string.Join(", ", calls.ToArray()) + "]}";
  }

  /// <summary>For the persona.</summary>
  internal static string Description(PumiceTool[] tools) {
    if (tools.Length == 0) return "";
    var lines = tools.Select(tool => "\n" + tool.name + ": " + tool.description + " Arguments: " + tool.parameters);
    return "\n\nWhen you are asked to act, you answer with {\"name\": …, \"arguments\": …} of one of these:" +
           string.Concat(lines.ToArray());
  }

  private static string Quoted(string text) { return "\"" + text.Replace("\\", "\\\\").Replace("\"", "\\\"") + "\""; }
}
}
