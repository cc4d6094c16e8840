-- A character of a game, such as a MUD in Lua, that talks through a server of goaitools-py.
--
-- Lua has no HTTP and no JSON of its own, so the game gives both:
--
--   host.request(method, url, headers, body) -> status, body
--   host.encode(value) -> text, host.decode(text) -> value
--
-- With LuaSocket and dkjson (neither is run by the tests of goaitools-py):
--
--   local http, ltn12, json = require("socket.http"), require("ltn12"), require("dkjson")
--   local host = { encode = json.encode, decode = json.decode }
--   function host.request(method, url, headers, body)
--     local pieces = {}
--     headers["content-length"] = body and #body or 0
--     local _, status = http.request {
--       method = method, url = url, headers = headers, sink = ltn12.sink.table(pieces),
--       source = body and ltn12.source.string(body),
--     }
--     return status, table.concat(pieces)
--   end

local Npc = {}
Npc.__index = Npc

-- A character. `base`: the server. `name`: the character's conversation. `secret`: what the server knows you by.
function Npc.new(host, base, name, secret)
  local address = base .. "/conversations/" .. name
  return setmetatable({ host = host, address = address, secret = secret }, Npc)
end

-- One request. Gives the value of the answer; or nil and a problem: {status, title, retryable, retry_after}.
function Npc:ask(method, path, value)
  local headers = { ["content-type"] = "application/json", ["x-user"] = self.secret }
  local body = value and self.host.encode(value)
  local status, text = self.host.request(method, self.address .. path, headers, body)
  local found = text ~= "" and self.host.decode(text) or nil
  if type(status) == "number" and status >= 200 and status < 300 then
    return found or true
  end
  return nil, found or { status = status, title = "no answer", retryable = true }
end

-- A player says something. The same id once more gets the same answer, so a request may be sent again.
function Npc:say(text, id)
  local result, problem
  for _ = 1, 3 do
    result, problem = self:ask("POST", "/turns", { text = text, turn_id = id })
    if result or not problem.retryable then break end
  end
  return result, problem
end

-- The game tells what happened. No model is asked: it reads this with the next message.
function Npc:happened(text, topic)
  return self:ask("POST", "/events", { { text = text, topic = topic } })
end

-- Answer the calls of a result that wait. `decide(call)` gives an answer: {approve = true}, {deny = "why"}, or
-- {["return"] = value} for a tool that the game runs itself.
function Npc:answer(result, decide)
  local answers = {}
  for _, call in ipairs(result.pending) do
    answers[call.id] = decide(call)
  end
  return self:ask("POST", "/answers", { answers = answers })
end

return Npc
