"""Provisional. An offline provider simulator: a loopback HTTP server with the API of a provider.

Owns: the replies of a simulated model, the provider's rules for requests, and faults on demand. Must never
know: how this package builds its requests, because the simulator checks them independently. No text comes
from a language model, and every text that a person may read begins with ``[simulated]``.

Begin with `server.py`. `anthropic/` and `openai/` have the APIs with their rules, `model/` has the replies.

```python
with SimServer() as sim:
    sim.push(Fault.rate_limit(retry_after=2), Reply.text("Hello."))
    client = openai.OpenAI(base_url=sim.base_url, api_key="any")
    other = anthropic.Anthropic(base_url=sim.base_url_for("anthropic"), api_key="any")
```
"""

from .anthropic.rules import check_anthropic
from .http_values import Response
from .model.game_master import GameMaster
from .model.prompt import Call, Model, Offer, Prompt, Reply, Said
from .openai.chat_rules import check_openai
from .openai.responses_rules import check_openai_responses
from .provider_faults import Fault, Scripted
from .server import Recorded, SimServer, serve

__all__ = [
    "Call",
    "Fault",
    "GameMaster",
    "Model",
    "Offer",
    "Prompt",
    "Recorded",
    "Reply",
    "Response",
    "Said",
    "Scripted",
    "SimServer",
    "check_anthropic",
    "check_openai",
    "check_openai_responses",
    "serve",
]
