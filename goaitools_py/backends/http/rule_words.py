"""The words by which servers refuse the form of a history, and the rules that they name.

Owns: the wordings with their letters, each with its source, the words of a template's error, and where an
error says which member it means. Must never know: a status, a provider API, the reaction to a rule.

A wording is searched in the server's own text only, without quotations, in upper or lower case. Several
wordings may match. A member that a server names in its own list of errors (`loc`, `param`) stands before the
text, such as ``messages.1.assistant.reasoning_content: Extra inputs are not permitted``. All sources were
looked at in 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from ...base import rawjson
from ..host_rules import RULES

__all__ = ["RULE_WORDINGS", "RuleWording", "is_of_template", "refusal_text", "rules_in"]


class RuleWording(NamedTuple):
    """One wording: the letters that it names, the servers, a regular expression, and where it was seen."""

    letters: str
    servers: str
    words: str
    source: str


_AT: Final = r"(?:messages|input)(?:\[\d+\]|\.\d+)"
"""The place of a message, as errors write it."""
_UNKNOWN: Final = (
    r"(?:extra inputs are not permitted|extra_forbidden|unknown parameter|unrecognized|"
    r"additional properties are not allowed|is unsupported|not supported|was unexpected)"
)

RULE_WORDINGS: Final = (
    # ------------------------------------------------------------------------------ the order of messages
    RuleWording(
        "a",
        "templates of Gemma and Mistral: vLLM, llama.cpp, LM Studio, Ollama",
        "roles must alternate",
        "kubeai-project/kubeai#499, charmbracelet/crush#279",
    ),
    RuleWording("a", "Anthropic, older; Bedrock", "roles must alternate between", "anthropics/courses#57"),
    RuleWording(
        "a",
        "Perplexity",
        r"roles should be alternating|messages?(?:\(s\))? should alternate with",
        "perplexityai/api-discussion#265, iamsrikanthnani/pluely#71",
    ),
    RuleWording(
        "a",
        "Gemini",
        "requests alternate between user and model",
        "its API's text, up to 2024",
    ),
    RuleWording(
        "a",
        "Gemini; templates of Qwen",
        "function call turn comes immediately after a user turn|no user query found",
        "RightNow-AI/openfang#1011, lmstudio-ai/lmstudio-bug-tracker#1586: a message of the user comes first",
    ),
    RuleWording(
        "a",
        "Mistral",
        r"unexpected role '?(user|assistant)'? after role '?\1\b",
        "as for its other orders",
    ),
    RuleWording(
        "u",
        "Mistral; vLLM with its models",
        "unexpected role '?user'? after role '?tool",
        "avante-corp/avante.nvim#2562, mistralai/mistral-vibe#578",
    ),
    RuleWording(
        "s", "Mistral", "unexpected role '?system'? after role", "mistral-common, request validation"
    ),
    RuleWording(
        "s",
        "templates of Qwen: vLLM, llama.cpp, LM Studio, Ollama, oMLX",
        r"system messages? (?:must|should|(?:can|may) only) be (?:at the (?:beginning|start)|(?:the )?first)",
        "vllm-project/vllm#41114, ollama/ollama#18241, jundot/omlx#197",
    ),
    RuleWording(
        "s",
        "templates of Mistral",
        "roles? (?:is|are) supported,? with the exception of an initial optional system",
        "the chat templates of Mistral's models",
    ),
    RuleWording(
        "s",
        "MiniMax",
        r"invalid chat setting \(2013\)|invalid message role: system \(2013\)",
        "can1357/oh-my-pi#954",
    ),
    RuleWording(
        "s",
        "Vertex, Anthropic's older models",
        r"role ['\"]?system['\"]? is not supported on this model|unexpected role \"?system\"?",
        "neurolink#1772; anthropics/anthropic-sdk-python, its API's text",
    ),
    RuleWording(
        "s",
        "LM Studio",
        "only user, assistant and tool roles are supported",
        "lmstudio-ai/lmstudio-bug-tracker#2219",
    ),
    RuleWording(
        "s",
        "Zhipu, DeepSeek and Qwen, on Messages",
        r"system in messages|unknown variant `?system`?, expected `?user|\.role: input should be '?user'? or"
        r"|\.role must be either '?user'? or '?assistant'?, but got '?system",
        "zai-org/GLM-5#74, vm0-ai/vm0#15388, QwenLM/Qwen#2244, anthropics/claude-code#63469",
    ),
    RuleWording(
        "z",
        "templates of Gemma 2: vLLM, SGLang, llama-cpp-python",
        "system role (?:is )?not supported",
        "vllm-project/vllm#2964, sgl-project/sglang#892",
    ),
    RuleWording(
        "l",
        "Mistral",
        "expected last role user or tool",
        "0xPlaygrounds/rig#1130, BerriAI/litellm#30835",
    ),
    RuleWording(
        "l",
        "llama.cpp",
        "assistant response prefill is incompatible|cannot have 2 or more assistant messages at the end",
        "ggml-org/llama.cpp#20861, co-l/openfox#367",
    ),
    RuleWording(
        "l",
        "Anthropic, DeepSeek, Perplexity, Gemini",
        "does not support assistant message prefill|(?:conversation|requests?) must end with a user message"
        "|last message (?:of [a-z0-9.-]+ )?must (?:have role|be (?:from )?(?:a|the) user)"
        "|ends? with a user role",
        "smallmain/vscode-unify-chat-provider#249, langgenius/dify#16860, songquanpeng/one-api#836",
    ),
    # ------------------------------------------------------------------------------------ ids, names, roles
    RuleWording(
        "i",
        "Mistral; vLLM with its models",
        r"tool call id.{0,120}?(?:length of 9|length 9)",
        "mistralai/mistral-vibe#1075; the chat templates of Mistral's models",
    ),
    RuleWording(
        "j",
        "OpenAI, Azure",
        r"(?:\.id|call_id)'?:? .{0,20}string too long",
        "vercel/ai#5171",
    ),
    RuleWording(
        "j",
        "Anthropic, Bedrock, Vertex",
        r"(?:tool_use\.id|tool_use_id|tooluseid)\b.{0,120}?(?:match pattern|regular expression|less than or)",
        "CommandCodeAI/command-code#323; docs.aws.amazon.com, ToolUseBlock",
    ),
    RuleWording(
        "f",
        "OpenAI, Azure",
        r"\.name'?:? .{0,20}(?:string too long|does not match pattern)"
        r"|missing required parameter: '?"
        + _AT
        + r"\.(?:tool_calls|content)\[\d+\]\.type"
        + r"|invalid '?"
        + _AT
        + r"\.(?:tool_calls|content)'?: empty array"
        r"|image_url'?: expected an object|cannot determine type of '?item",
        "agno-agi/agno#5116, openai/openai-node#1341, langchain-ai/langchainjs#11416",
    ),
    RuleWording(
        "y",
        "Groq; Mistral",
        r"property '?name'? is unsupported|" + _AT + r"\.(?:user|system|assistant|tool)\.name: " + _UNKNOWN,
        "console.groq.com/docs/openai; Gage-Technologies/mistral-go#2",
    ),
    RuleWording(
        "d",
        "DeepSeek, DashScope, vLLM, templates of llama.cpp",
        r"\bdeveloper\b.{0,40}?(?:is not one of|expected one of|not supported|is not a valid|unsupported)"
        r"|(?:unknown|unsupported|unexpected|invalid|unrecognized)(?: message)? (?:role|variant)s?:? "
        r"['\"`]?developer\b|unexpected message role|\.role: value is not supported",
        "earendil-works/pi#1048, cloudwego/eino#994; the chat templates of Qwen's models",
    ),
    # --------------------------------------------------------------------------------- reasoning, signatures
    RuleWording(
        "ek",
        "Moonshot, which refuses an empty text, too",
        "reasoning_content`? is missing",
        "continuedev/continue#11600, earendil-works/pi#4178",
    ),
    RuleWording(
        "k",
        "DeepSeek",
        r"missing `?reasoning_content"
        r"|(?:reasoning_content|content\[\]\.thinking)`? in the thinking mode must be passed back",
        "anomalyco/opencode#17523, earendil-works/pi#3636",
    ),
    RuleWording(
        "q",
        "Cerebras, Groq",
        r"property '?[\w.]*reasoning_content'? is unsupported",
        "QwenLM/qwen-code#11045, janhq/jan#8136",
    ),
    RuleWording(
        "r",
        "Groq, Cerebras",
        r"property '?[\w.]*reasoning'? is unsupported",
        "vercel/ai#8057",
    ),
    RuleWording(
        "r",
        "Mistral; servers with closed request types",
        r"reasoning(?:_content|_details)?: "
        + _UNKNOWN
        + r"|unknown parameter: '?"
        + _AT
        + r"\.reasoning"
        + r"|\('?reasoning(?:_content|_details)?'? was unexpected",
        "charmbracelet/crush#1590, BerriAI/litellm#30835",
    ),
    RuleWording(
        "r",
        "Anthropic, for thinking without a signature",
        r"thinking\.signature: field required",
        "its API's text; see anthropics/anthropic-sdk-python, types/thinking_block_param",
    ),
    RuleWording(
        "r",
        "servers of the Responses API without reasoning",
        r"unknown input item type:? ['\"`]?reasoning|reasoning['\"`]? (?:items? )?(?:is|are) not supported",
        "ollama/ollama, responses.go at fb307609",
    ),
    RuleWording(
        "r",
        "Groq's models that do not think; llama.cpp and vLLM on Responses",
        r"\breasoning is not supported|item\['content'\] is|responsereasoningitemparam",
        "vercel/ai#8057; ggml-org/llama.cpp, server-chat.cpp at 03eb25f3; vllm-project/vllm, responses",
    ),
    RuleWording(
        "c",
        "the template of gpt-oss: llama.cpp, LM Studio",
        "cannot pass both content and thinking",
        "ggml-org/llama.cpp#19702, lmstudio-ai/lmstudio-bug-tracker#842",
    ),
    RuleWording(
        "g",
        "Gemini, Vertex, gateways before them",
        r"missing a `?thought_signature",
        "securo-finance/securo#884, langgenius/dify-official-plugins#2088",
    ),
    # --------------------------------------------------------------------------------------- content, parts
    RuleWording(
        "e",
        "Moonshot, Anthropic, Bedrock, Cohere, xAI, Mistral",
        "must not be empty|must be non-empty|must have non-empty content|text content is empty"
        "|text field in the contentblock object at .{0,60}is blank|must have at least one content element"
        "|must have either content or tool_calls, but not none",
        "MoonshotAI/kimi-code#1985, BerriAI/litellm#42186, vercel/ai#14618, AstrBotDevs/AstrBot#6447, "
        "mistral-common",
    ),
    RuleWording(
        "n",
        "Cloudflare Workers AI; DeepSeek; Groq; Ollama; servers with pydantic",
        r"type mismatch of '?/messages/\d+/content'?, '?null|required properties at '?/messages/\d+'? are "
        r"'?role,content|expected a string, got null|invalid type: null, expected"
        r"|invalid message content type: <nil>|\.content'? : value must be a string"
        r"|\.content: input should be a valid string.{0,60}nonetype|\.content: field required"
        r"|expected '?content'? to be a string",
        "TencentCloud/TencentDB-Agent-Memory#1313, devoxx/DevoxxGenieIDEAPlugin#1262, vercel/ai#13744; "
        "ollama/ollama, openai.go at fb307609",
    ),
    RuleWording(
        "x",
        "Cloudflare Workers AI; DeepSeek; NVIDIA NIM and other servers with templates",
        r"'?array'? not in '?string|invalid type: sequence, expected a string"
        r"|can only concatenate str \(not \"?list|expected str instance, list found"
        r"|\.content: input should be a valid string.{0,60}input_type=list"
        r"|image input is not supported|unknown variant `?image_url|is not a multimodal model"
        r"|does not support (?:image|vision)|invalid image input|output of tool call should be",
        "anomalyco/opencode#30381, zendev-sh/goai#79, earendil-works/pi#1528, ggml-org/llama.cpp#19917",
    ),
    RuleWording(
        "p",
        "OpenAI, Azure, vLLM, Together",
        r"image urls are only allowed for messages with role"
        r"|(?:messages|input)\[\d+\]\.content(?:\[\d+\])?(?:\.type)?'?: invalid value"
        r"|missing required parameter: '?" + _AT + r"\.content\[\d+\]\.(?!type)\w"
        r"|unknown part type|unsupported content(?: part|\[\]\.type)|unknown input item type"
        r"|invalid message format|cannot determine type of '?item"
        r"|'?input_(?:file|image|audio)'? is not supported|file inputs are not (?:currently )?supported",
        "openai-node#1341, its API's text; vllm-project/vllm, chat_utils.py",
    ),
    RuleWording(
        "m",
        "OpenAI, Azure, Mistral, Anthropic, Bedrock, NVIDIA NIM",
        r"unknown parameter: '?(?:messages|input)\["
        r"|(?:messages|input)(?:\[\d+\]|\.\d+)[\w.\[\]]*: "
        + _UNKNOWN
        + r"|"
        + _AT
        + r"'? : property '?(?!name\b|reasoning)\w+'? is unsupported",
        "partITech/php-mistral#76, zeroclaw-labs/zeroclaw#2693, anthropics/claude-code#4378",
    ),
    RuleWording(
        "x",
        "vLLM, Responses: a reply in parts needs an id and a status; one that is text needs neither",
        r"'missing', 'loc': \(.{0,60}'ResponseOutputMessageParam'",
        "vllm-project/vllm#45273, 2026-06",
    ),
    RuleWording(
        "r",
        "vLLM, Responses: reasoning needs an id",
        r"'missing', 'loc': \(.{0,60}'ResponseReasoningItemParam'",
        "vllm-project/vllm, responses/protocol.py, 2026",
    ),
    RuleWording("w", "Anthropic, Bedrock, Vertex", "many-image requests", "can1357/oh-my-pi#10633"),
    RuleWording(
        "o",
        "DeepSeek, Moonshot, DashScope, Cerebras, while the model thinks",
        r"does not support (?:this )?tool_choice|tool_choice .{0,20}is incompatible with thinking"
        r"|tool_choice parameter does not support|unsupported tool_choice",
        "deepseek-ai/DeepSeek-V3#1376, can1357/oh-my-pi#827, cloudwego/eino#994, 567-labs/instructor#1766",
    ),
    RuleWording(
        "v",
        "Bedrock, Vertex, vLLM",
        r"too many images|at most (?:[2-9]\d|\d{3,}) image",
        "the documentation of Messages on Bedrock; vllm-project/vllm, multimodal/processing",
    ),
    RuleWording(
        "h",
        "vLLM, Ollama, llama.cpp",
        r"(?:extra data|expecting value|expecting property name|unterminated string starting at"
        r"|expecting '[,:]' delimiter)[^:]{0,40}: line \d+ column \d+|invalid tool call arguments"
        r"|failed to parse (?:function|tool) call arguments",
        "vllm-project/vllm#45276, ggml-org/llama.cpp#25510; ollama/ollama, openai.go at fb307609",
    ),
    RuleWording(
        "o",
        "DeepSeek, Moonshot, DashScope, Anthropic",
        r"does not support this tool_choice|tool_choice.{0,40}(?:is incompatible with thinking"
        r"|does not support being set to required)|thinking may not be enabled when tool_choice forces",
        "deepseek-ai/DeepSeek-V3#1376, can1357/oh-my-pi#827, cloudwego/eino#994",
    ),
    RuleWording(
        "t",
        "LiteLLM, Bedrock's Converse, Anthropic, older",
        r"support tool calling without `?tools=|toolconfig field must be defined when using"
        r"|requests which have `?tool_use`? or `?tool_result`? blocks in messages must define tools",
        "BerriAI/litellm#24712, camel-ai/owl#532, onyx-dot-app/onyx#7842, pydantic/pydantic-ai#5929",
    ),
)
"""Each wording with its letters. The letters are those of `host_rules.RULES`."""

_EXCLUDED: Final = (("r", "kq"), ("q", "k"), ("i", "j"), ("z", "s"), ("n", "e"))

_TEMPLATE: Final = (
    r"raise_exception|\bjinja\b|chat template|templateerror|roles must|roles should be alternating"
    r"|system message must|system role not supported|cannot pass both|expected last role"
    r"|no user query found|roles are supported"
)
"""Words of a template that refuses a history. Servers send them with status 500, too:
ggml-org/llama.cpp#27367, ollama/ollama#18241, lmstudio-ai/lmstudio-bug-tracker#1586."""

_LONGEST: Final = 8192
"""Characters of a text that are searched."""

_pattern = cache(re.compile)


def rules_in(text: str) -> str:
    """The letters of the rules that a server's own words name, sorted; "" without one."""
    said = " ".join(text[:_LONGEST].split())
    found = {
        letter
        for wording in RULE_WORDINGS
        if _pattern(wording.words, re.IGNORECASE).search(said)
        for letter in wording.letters
    }
    for stronger, weaker in _EXCLUDED:
        if stronger in found:
            found -= set(weaker)
    return "".join(sorted(letter for letter in found if letter in RULES))


def is_of_template(text: str) -> bool:
    """True if a server's own words say that a model's template refused the history."""
    return _pattern(_TEMPLATE, re.IGNORECASE).search(text[:_LONGEST]) is not None


# ----------------------------------------------------------------------------- where an error says it

_MOST_ITEMS: Final = 20
_DEPTH: Final = 3
_PARAM: Final = re.compile(r"[\w.\[\]]{1,120}")

_FRAME: Final = re.compile(
    r"(?:Unable to generate parser for this template\. Automatic parser generation failed:)?"
    r"[\s-]*While executing \w+ at line \d+, column \d+\s+in source:"
)
"""llama.cpp's frame around a template's error, at the beginning of a text: an excerpt of the template, cut
off in the middle of a quotation, then the error. There is no text of a user in it."""
_RAISED: Final = "Jinja Exception: "


def refusal_text(error: object, own_words: Callable[[str], str]) -> str:
    """The server's own text of an error, with the places of members that it means.

    Args:
        error: The error of an answer: an object, or a text.
        own_words: Leaves out the quotations of a text.
    """
    return "\n".join(_texts(error, own_words, _DEPTH))[:_LONGEST]


def _texts(error: Any, own_words: Callable[[str], str], depth: int) -> Iterator[str]:
    if isinstance(error, str):
        yield from _of_text(error, own_words, depth)
    elif isinstance(error, list):  # FastAPI, pydantic
        for item in error[:_MOST_ITEMS]:
            yield from _texts(item, own_words, depth - 1) if depth else ()
    elif isinstance(error, dict):
        place = _place(error)
        for key in ("message", "msg"):
            if isinstance(said := error.get(key), str):
                yield from (place + text for text in _of_text(said, own_words, depth))
        if depth:
            inner = [error.get(key) for key in ("detail", "message", "metadata")]
            for value in inner:
                if isinstance(value, (dict, list)):
                    yield from _texts(value, own_words, depth - 1)
            for key in ("detail", "raw"):  # OpenRouter: the text of the server behind it
                if isinstance(said := error.get(key), str):
                    yield from _of_text(said, own_words, depth - 1)


def _place(error: dict[str, Any]) -> str:
    """The member that an error means, and a colon; "" if it does not say so."""
    loc, param = error.get("loc"), error.get("param")
    if isinstance(loc, list):
        names = [str(one)[:60] for one in loc[:_MOST_ITEMS] if one != "body" and isinstance(one, (str, int))]
        param = ".".join(names)
    return f"{param}: " if isinstance(param, str) and _PARAM.fullmatch(param) else ""


def _of_text(said: str, own_words: Callable[[str], str], depth: int) -> Iterator[str]:
    if depth and said.lstrip().startswith("{"):  # an error as text in another server's error
        try:
            inner = rawjson.loads(said.encode("utf-8", "replace")[: 8 * _LONGEST])
        except rawjson.RawJSONError:
            inner = None
        if isinstance(inner, dict):
            yield from _texts(inner.get("error") or inner, own_words, depth - 1)
            return
    if _FRAME.match(said) and _RAISED in said:
        yield _RAISED + said.rpartition(_RAISED)[2][:_LONGEST]
        return
    yield own_words(said)
