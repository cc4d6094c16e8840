// A character of a game in C# that talks through a server of goaitools-py. It needs Newtonsoft.Json: in Unity
// the package com.unity.nuget.newtonsoft-json.
//
// The game gives two functions, because Unity, Godot and plain .NET differ in them; docs/other_languages.md has
// those of Unity:
//
//   send(method, url, body)   one HTTP request; an Answer, with Status 0 if none came
//   wait(seconds)             returns after that time
using System;
using System.Threading.Tasks;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

/// <summary>What a server answered. Status 0: nothing came, or only a part.</summary>
public struct Answer
{
    public int Status;
    public string Body;
}

/// <summary>A request failed. Retryable: the same request, with the same id, may succeed later.</summary>
public class NpcException : Exception
{
    public readonly int Status;
    public readonly bool Retryable;
    public readonly double? RetryAfter;

    public NpcException(string title, int status, bool retryable, double? retryAfter = null) : base(title)
    {
        Status = status;
        Retryable = retryable;
        RetryAfter = retryAfter;
    }
}

public class Npc
{
    public int Attempts = 5;

    private readonly string address;
    private readonly Func<string, string, string, Task<Answer>> send;
    private readonly Func<double, Task> wait;

    public Npc(string server, string name, Func<string, string, string, Task<Answer>> send, Func<double, Task> wait)
    {
        address = server + "/conversations/" + name;
        this.send = send;
        this.wait = wait;
    }

    /// <summary>A player says something. Keep the id: with it the same message may be sent again.</summary>
    public Task<JToken> Say(string text, string id)
    {
        return Again("/turns", new JObject { ["text"] = text, ["turn_id"] = id });
    }

    /// <summary>After a start of the game: go on with a turn that was cut off. Null if there is none.</summary>
    public Task<JToken> ComeBack()
    {
        return Again("/turns/current", new JObject());
    }

    /// <summary>Answer the calls of a result that wait: {id: {"approve": true}}, or {"return": value}.</summary>
    public Task<JToken> Answers(JObject answers)
    {
        return Again("/answers", new JObject { ["answers"] = answers });
    }

    /// <summary>The game tells what happened. It is asked once: an event has no id.</summary>
    public Task<JToken> Happened(string text)
    {
        return Ask("/events", new JArray { new JObject { ["text"] = text } });
    }

    private async Task<JToken> Again(string path, JToken value)
    {
        for (var attempt = 1; ; attempt++)
        {
            var pause = 0.0;
            try
            {
                return await Ask(path, value);
            }
            catch (NpcException problem)
            {
                if (!problem.Retryable || attempt >= Attempts) throw;
                pause = problem.RetryAfter ?? Math.Pow(2, attempt - 1);
            }
            await wait(pause);
        }
    }

    private async Task<JToken> Ask(string path, JToken value)
    {
        var answer = await send("POST", address + path, value.ToString(Formatting.None));
        if (answer.Status == 204) return null;
        JToken found = null;
        try
        {
            found = JToken.Parse(answer.Body ?? "");
        }
        catch (JsonReaderException)
        {
            // A proxy answers in HTML.
        }
        if (answer.Status >= 200 && answer.Status < 300 && found != null) return found;
        var problem = found as JObject;
        if (problem != null && problem["title"] != null)
        {
            var retryable = (bool?)problem["retryable"] ?? false;
            throw new NpcException((string)problem["title"], answer.Status, retryable, (double?)problem["retry_after"]);
        }
        var mayPass = answer.Status < 400 || answer.Status == 429 || answer.Status >= 500;
        throw new NpcException("no answer of the server", answer.Status, mayPass);
    }
}
