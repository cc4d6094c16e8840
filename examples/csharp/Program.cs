// A console program with the character, over HttpClient: Program.exe http://127.0.0.1:8000 SECRET
using System;
using System.Net.Http;
using System.Text;
using System.Threading.Tasks;
using Newtonsoft.Json.Linq;

public static class Program
{
    public static int Main(string[] arguments)
    {
        return Run(arguments[0], arguments[1]).GetAwaiter().GetResult();
    }

    private static async Task<int> Run(string server, string secret)
    {
        var client = new HttpClient();
        Func<string, string, string, Task<Answer>> send = async (method, url, body) =>
        {
            var request = new HttpRequestMessage(new HttpMethod(method), url);
            request.Headers.TryAddWithoutValidation("x-user", secret);
            request.Content = new StringContent(body, Encoding.UTF8, "application/json");
            try
            {
                var response = await client.SendAsync(request);
                return new Answer { Status = (int)response.StatusCode, Body = await response.Content.ReadAsStringAsync() };
            }
            catch (Exception error) when (error is HttpRequestException || error is System.IO.IOException || error is TaskCanceledException)
            {
                return new Answer();
            }
        };
        var waited = 0;
        Func<double, Task> wait = seconds =>
        {
            waited++;
            return Task.Delay(TimeSpan.FromSeconds(Math.Min(seconds, 0.01)));  // a game waits all of them
        };
        var guard = new Npc(server, "guard", send, wait);
        Console.WriteLine("left: " + (await guard.ComeBack() == null ? "nothing" : "a turn"));
        await guard.Happened("Ada came through the gate.");
        Console.WriteLine("said: " + (string)(await guard.Say("Good evening!", "message-4711"))["text"]);
        Console.WriteLine("waited: " + waited);
        var asked = await guard.Say("Roll!", "message-4712");
        var answers = new JObject();
        foreach (var call in asked["pending"]) answers[(string)call["id"]] = new JObject { ["return"] = 5 };
        Console.WriteLine("said: " + (string)(await guard.Answers(answers))["text"]);
        try
        {
            await new Npc(server, "../bad", send, wait).Say("Hello!", "m1");
        }
        catch (NpcException problem)
        {
            Console.WriteLine("problem: " + problem.Status + " " + problem.Retryable);
        }
        return 0;
    }
}
