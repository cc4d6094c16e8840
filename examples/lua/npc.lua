-- A character of a game, such as a MUD in Lua, that talks through a server of goaitools-py.
--
-- Lua has no HTTP, no JSON and no pause of its own, so the game gives them:
--
--   host.request(method, url, headers, body) -> status, body; without an answer anything but a number
--   host.encode(value) -> text, host.decode(text) -> value; an error or nil if the text is no JSON
--   host.wait(seconds): returns after that time. A game yields here, so that it goes on meanwhile
--
-- With LuaSocket and dkjson (neither is run by the tests of goaitools-py):
--
--   local http, ltn12, json = require("socket.http"), require("ltn12"), require("dkjson")
--   local host = { encode = json.encode, decode = json.decode, wait = require("socket").sleep }
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
  if type(status) ~= "number" then
    return nil, { status = 0, title = "no answer", retryable = true }
  end
  local is_good = status >= 200 and status < 300
  if is_good and text == "" then return true end
  local read, found = pcall(self.host.decode, text)
  local is_json = read and found ~= nil
  if is_good and is_json then return found end
  if is_json and type(found) == "table" and found.title then return nil, found end
  -- A proxy answers in HTML: what it says of itself may pass, what it says of the request does not.
  local passes = is_good or status == 429 or status >= 500
  return nil, { status = status, title = "no answer of the server", retryable = passes }
end

-- The same, again while it may succeed later: a 429, a lost connection, a proxy's 502.
function Npc:again(method, path, value)
  for attempt = 1, 5 do
    local result, problem = self:ask(method, path, value)
    if result or not problem.retryable or attempt == 5 then return result, problem end
    self.host.wait(problem.retry_after or 2 ^ (attempt - 1))
  end
end

-- A player says something. The same id once more gets the same answer, so a request may be sent again.
function Npc:say(text, id)
  return self:again("POST", "/turns", { text = text, turn_id = id })
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
  return self:again("POST", "/answers", { answers = answers })
end

return Npc
