"""The hosts of Chat Completions: their rules, in their own words, and how they reply.

Owns: the table, with a source and a date beside every row. Must never know: how a rule reads a request, or
the rules that this package itself has for hosts.

A host takes what no row refuses, also where OpenAI would not. `HOSTED` lists refusals of OpenAI that
no other host makes. The words of a row are the host's as its source has them, but where the row
says "words unknown".
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from . import chat_histories as history
from . import chat_requests as request
from .chat_gateways import CHAT_GATEWAYS
from .error_shapes import (
    cerebras_error,
    dashscope_error,
    google_list,
    groq_error,
    minimax_error,
    mistral_error,
    moonshot_error,
    openai_error,
    xai_error,
)
from .host import Breaks, Host, HostRule, Waived
from .host_replies import Manner
from .own_servers import HOSTED, OWN_SERVERS, REASONS, REASONS_CONTENT

__all__ = ["CHAT_HOSTS"]

_DESERIALIZE = "Failed to deserialize the JSON body into the target type: messages[{}]"

# ------------------------------------------------------------------------------ the manners of models

_chat_model = request.is_thinking("deepseek-chat")
_kimi = request.is_thinking("moonshot-v1", "kimi-k2-0", "kimi-k2-turbo", "kimi-latest")
_qwen = request.is_thinking("qwen-plus", "qwen-max", "qwen-turbo", "qwen2")
_gemini = request.is_thinking("gemini-1", "gemini-2", "gemma")

_MOONSHOT_SCHEMA: Final = "tools.function.parameters is not a valid moonshot flavored json schema, details: "
_MISTRAL_MEMBERS: Final = {
    "system": ("role", "content"),
    "user": ("role", "content"),
    "assistant": ("role", "content", "tool_calls", "prefix"),
    "tool": ("role", "content", "tool_call_id", "name"),
}


def _unsupported(key: str, role: str, source: str) -> HostRule:
    """Groq's refusal of a member."""
    return HostRule(
        name=f"no {key} of {'an assistant' if role == 'assistant' else 'a user'}",
        breaks=history.no_member(role, key),
        text=f"'messages.{{}}' : for 'role:{role}' the following must be satisfied[('messages.{{}}' : "
        f"property '{key}' is unsupported)]",
        source=source,
    )


def _schema(name: str, breaks: Breaks, details: str, source: str) -> HostRule:
    """Moonshot's refusal of a tool's schema."""
    return HostRule(name=name, breaks=breaks, text=f"{_MOONSHOT_SCHEMA}<{details}>", source=source)


CHAT_HOSTS: Final = (
    Host(name="openai"),
    Host(name="azure"),
    Host(
        name="deepseek",
        rules=(
            HostRule(
                name="no developer",
                breaks=history.no_role("developer"),
                text=_DESERIALIZE
                + ".role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, "
                "`tool`, "
                "`latest_reminder`",
                source="theopenco/llmgateway#3462, 2026-08-07",
                code="invalid_request_error",
            ),
            HostRule(
                name="no pictures",
                breaks=history.mentions_part("user", kind="image_url"),
                text=_DESERIALIZE + ": unknown variant `image_url`, expected `text`",
                source="esengine/DeepSeek-Reasonix#7859, 2026-08-07",
                code="invalid_request_error",
            ),
            HostRule(
                name="reasoning beside calls",
                breaks=history.calls_have_reasoning(may_be_empty=True, thinks=_chat_model),
                text="The `reasoning_content` in the thinking mode must be passed back to the API.",
                source="api-docs.deepseek.com guides/thinking_mode; zed-industries/zed#55321, 2026-04-30",
                code="invalid_request_error",
            ),
            HostRule(
                name="no forced choice while thinking",
                breaks=request.no_forced_choice(thinks=_chat_model),
                text="Thinking mode does not support this tool_choice",
                source="deepseek-ai/DeepSeek-V3#1376, 2026-08; XiaomiMiMo/MiMo-Code#2068, 2026-08-09",
                code="invalid_request_error",
            ),
            HostRule(
                name="no JSON Schema",
                breaks=request.no_schema_mode,
                text="This response_format type is unavailable now",
                source="UKGovernmentBEIS/inspect_ai#4916, 2026-08",
                code="invalid_request_error",
            ),
        ),
        takes=HOSTED,
        shape=openai_error,
        manner=replace(
            REASONS_CONTENT,
            thinks=_chat_model,
            call_id=lambda hexed, _, nth: f"call_{nth % 100:02}_{hexed[:22]}",
        ),
    ),
    Host(
        name="moonshot",
        rules=(
            HostRule(
                name="no mute assistant",
                breaks=history.no_mute_assistant,
                text="Invalid request: the message at position {} with role 'assistant' must not be empty",
                source="AstrBotDevs/AstrBot#7200 and #7202, 2026-03-30",
            ),
            HostRule(
                name="reasoning beside calls",
                breaks=history.calls_have_reasoning(may_be_empty=False, thinks=_kimi),
                text="thinking is enabled but reasoning_content is missing in assistant tool call message at "
                "index {}",
                source='continuedev/continue#11600, 2026-03-18; "" is refused too: earendil-works/pi#4178, '
                "2026-05-05",
            ),
            HostRule(
                name="no forced choice while thinking",
                breaks=request.no_forced_choice(thinks=_kimi),
                text="tool_choice '{}' is incompatible with thinking enabled",
                source="can1357/oh-my-pi#827, 2026-04; #1078, 2026-05-14",
            ),
            HostRule(
                name="temperature of 1",
                breaks=request.only_value("temperature", 1, when=_kimi),
                text="invalid temperature: only 1 is allowed for this model",
                source="bike4mind#1089, 2026-07",
            ),
            HostRule(
                name="names begin with a letter",
                breaks=request.names_match(re.compile(r"[A-Za-z_].*")),
                text="tools[{}].function.name is invalid",  # words unknown
                source="MoonshotAI/kimi-cli#2531, 2026-07-22",
            ),
            _schema(
                "no type beside anyOf",
                request.no_type_beside_any_of,
                "At path '{}': when using anyOf, type should be defined in anyOf items instead of the parent "
                "schema",
                "yilewang/llm-for-zotero#416, 2026-09-01",
            ),
            _schema(
                "nothing beside $ref",
                request.nothing_beside_ref("description", "default", "title"),
                "At path '{}",
                "MoonshotAI/kimi-cli#2061, 2026-04-24",
            ),
            _schema(
                "properties have types",
                request.properties_have_types,
                "At path '{}': type is not defined",
                "MoonshotAI/kimi-cli#1595; can1357/oh-my-pi#5952, 2026-07-18",
            ),
        ),
        takes=HOSTED,
        shape=moonshot_error,
        manner=Manner(
            reasoning="reasoning_content",
            thinks=_kimi,
            plain=True,
            usage_in_choice=True,  # AstrBotDevs/AstrBot#6614, 2026-03
            call_id=lambda _, name, nth: f"functions.{name}:{nth}",  # vllm-project/vllm#32146, 2026-01
        ),
    ),
    Host(
        name="mistral",
        rules=(
            HostRule(
                name="only known members",
                breaks=history.only_members(_MISTRAL_MEMBERS, ("id", "type", "function", "index")),
                text="Extra inputs are not permitted",
                source="charmbracelet/crush#1590, 2025-12-10; zeroclaw-labs/zeroclaw#2693, 2026-03-04; "
                "BerriAI/litellm#30835, 2026-06-19",
                status=422,
                code="extra_forbidden",
                param="{}",
            ),
            HostRule(
                name="ids of nine",
                breaks=history.ids_match(re.compile(r"[A-Za-z0-9]{9}")),
                text="Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9.",
                source="editor-code-assistant/eca#233, 2025-12-13",
                code="3280",
                type="invalid_function_call",
            ),
            HostRule(
                name="no user after a result",
                breaks=history.user_not_after("tool"),
                text="Unexpected role 'user' after role 'tool'",
                source="avante-corp/avante.nvim#2695, 2025-09-07; NousResearch/hermes-agent#20154, "
                "2026-05-05",
                code="3230",
                type="invalid_request_message_order",
            ),
            HostRule(
                name="ends open",
                breaks=history.ends_open,
                text="Expected last role User or Tool (or Assistant with prefix True) for serving but got {}",
                source="huggingface/smolagents#757, 2025-02-23; 0xPlaygrounds/rig#1130, 2025-12-08",
                code="3230",
                type="invalid_request_message_order",
            ),
        ),
        takes=(
            *HOSTED,
            Waived("Invalid value: 'thinking'", "docs.mistral.ai/capabilities/reasoning, 2026"),
        ),
        shape=mistral_error,
        manner=Manner(reasoning="content", plain=True, call_id=lambda hexed, _, __: hexed[:9]),
    ),
    Host(
        name="groq",
        rules=(
            _unsupported(
                "reasoning_content",
                "assistant",
                "NousResearch/hermes-agent#11089, 2026-04-16; tashfeenahmed/freellmapi#1070, 2026-08-30",
            ),
            _unsupported("name", "user", "console.groq.com/docs/openai, 2026"),
            HostRule(
                name="no reasoning of other models",
                breaks=history.no_member(
                    "assistant", "reasoning", unless=request.is_thinking("llama", "meta-llama", "moonshotai")
                ),
                text="messages[{}].reasoning: reasoning is not supported with this model",
                source="vercel/ai#8057, 2025-08-14",
            ),
            HostRule(
                name="no settings of others",
                breaks=request.no_setting("logprobs", "logit_bias", "top_logprobs", "reasoning"),
                text="property '{}' is unsupported",
                source="console.groq.com/docs/openai, 2026; musistudio/llms#64, 2025-12-31",
            ),
            HostRule(
                name="one choice",
                breaks=request.only_value("n", 1, when=lambda _: True),
                text="'n' : number must be at most 1",
                source="console.groq.com/docs/openai, 2026",
            ),
        ),
        takes=HOSTED,
        shape=groq_error,
        manner=replace(REASONS, call_id=lambda hexed, _, __: hexed[:9]),
    ),
    Host(
        name="gemini",
        rules=(
            HostRule(
                name="calls are signed",
                breaks=history.calls_signed(thinks=_gemini),
                text="Function call is missing a thought_signature in functionCall parts. This is "
                "required for "
                "tools to work correctly, and missing thought_signature may lead to degraded model "
                "performance. "
                "Additional data, function call {}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
                source="TokenRhythm/opensquilla#225, 2026-06-08; ai.google.dev thought-signatures",
            ),
            HostRule(
                name="calls after a user",
                breaks=history.call_after_user,
                text="Please ensure that function call turn comes immediately after a user turn or after a "
                "function response turn.",
                source="openfang#1011, 2026-04",
            ),
            HostRule(
                name="names begin with a letter",
                breaks=request.names_match(re.compile(r"[A-Za-z_].*")),
                text="Invalid value at 'tools[0].function_declarations[{}].name': Invalid function name. "
                "Must "
                "start with a letter or an underscore.",
                source="ccs#25; openswarm#24, 2026-05",
            ),
        ),
        takes=HOSTED,
        shape=google_list,
        manner=Manner(signs=True, plain=True),
    ),
    Host(
        name="cerebras",
        rules=(
            HostRule(
                name="no reasoning_content of an assistant",
                breaks=history.no_member("assistant", "reasoning_content"),
                text="messages.{}.assistant.reasoning_content: property "
                "'messages.{}.assistant.reasoning_content' is unsupported",
                source="Kilo-Org/kilocode#10375, 2026-05-19; QwenLM/qwen-code#11045, 2026-09-04",
                code="wrong_api_format",
                param="validation_error",
            ),
            HostRule(
                name="no settings of others",
                breaks=request.no_setting(
                    *("reasoning", "enable_thinking", "frequency_penalty", "presence_penalty", "logit_bias"),
                    *(
                        "service_tier",
                        "parallel_tool_calls",
                    ),
                ),
                text="property '{}' is unsupported",
                source="proxysoul/Empryo#209, 2026-09-19; inference-docs.cerebras.ai, 2026",
                code="wrong_api_format",
                param="validation_error",
            ),
            HostRule(
                name="no developer",
                breaks=history.no_role("developer"),
                text="messages.{}.role: value is not supported",  # words unknown
                source="req_llm docs, 2026-09",
                code="wrong_api_format",
                param="validation_error",
            ),
        ),
        takes=HOSTED,
        shape=cerebras_error,
        manner=replace(REASONS, call_id=lambda hexed, _, __: hexed[:9]),
    ),
    Host(
        name="xai",
        rules=(
            HostRule(
                name="no empty content",
                breaks=history.no_empty_content,
                text="Invalid request content: Each message must have at least one content element.",
                source="charmbracelet/crush#964, 2025-09-05; AstrBotDevs/AstrBot#6447, 2026-03-16",
            ),
            HostRule(
                name="no settings of others",
                breaks=request.no_setting(
                    *("presence_penalty", "frequency_penalty", "stop"),
                    words={"presence_penalty": "presencePenalty", "frequency_penalty": "frequencyPenalty"},
                ),
                text="Argument not supported on this model: {}",
                source="BerriAI/litellm#12635, 2025-07-16; miaoxworld/NativeTavern#83, 2026-09-15",
            ),
        ),
        takes=HOSTED,
        shape=xai_error,
        manner=REASONS_CONTENT,
    ),
    Host(
        name="qwen",
        rules=(
            HostRule(
                name="no developer",
                breaks=history.no_role("developer"),
                text="<400> InternalError.Algo.InvalidParameter: developer is not one of ['system', "
                "'assistant', 'user', 'tool', 'function'] - 'messages.{}.role'",
                source="Alibaba Cloud Model Studio, error codes, 2026-09",
                code="invalid_parameter_error",
            ),
            HostRule(
                name="no forced choice while thinking",
                breaks=request.no_forced_choice(thinks=_qwen),
                text="<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support "
                "being set to required or object in thinking mode",
                source="cloudwego/eino#994, 2026-04-24; QwenLM/qwen-code#7659, 2026-07-24",
                code="invalid_parameter_error",
            ),
        ),
        takes=HOSTED,
        shape=dashscope_error,
        manner=replace(REASONS_CONTENT, thinks=_qwen),
    ),
    Host(
        name="minimax",
        rules=(
            HostRule(
                name="one system message",
                breaks=history.one_system,
                text="invalid params, invalid chat setting (2013)",
                source="openclaw/openclaw#19386, 2026-02-17; can1357/oh-my-pi#954, 2026-05-07",
            ),
            HostRule(
                name="system first",
                breaks=history.system_first,
                text="invalid params, chat content has invalid message role: system (2013)",
                source="temm1e-labs/temm1e#59, 2026-04-21; BigPizzaV3/CodexPlusPlus#267, 2026-05-23",
            ),
            HostRule(
                name="results answer calls",
                breaks=history.results_answer,
                text="invalid params, tool result's tool id({}) not found (2013)",
                source="MiniMax-AI/MiniMax-M2#76",
            ),
        ),
        takes=HOSTED,
        shape=minimax_error,
        manner=REASONS_CONTENT,
    ),
    *CHAT_GATEWAYS,
    *OWN_SERVERS,
)
