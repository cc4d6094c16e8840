"""An offline provider simulator: a loopback HTTP server that speaks a provider's wire.

Owns: replies of a simulated model, the provider's rules for requests, faults to order. Must never know: how
this package builds its requests; it is a second opinion on them. Nothing it says comes from a language
model, and every text that a person may read begins with ``[simulated]``.

```python
with SimServer() as sim:
    sim.push(Fault.rate_limit(retry_after=2), Reply.text("Hello."))
    client = openai.OpenAI(base_url=sim.base_url, api_key="any")
    other = anthropic.Anthropic(base_url=sim.base_url_for("anthropic"), api_key="any")
```
"""

from .anthropic_rules import check_anthropic
from .entry import serve
from .faults import Fault, Scripted
from .game_master import GameMaster
from .prompt import Call, Model, Offer, Prompt, Reply, Said
from .response import Response
from .responses_rules import check_openai_responses
from .rules import check_openai
from .server import Recorded, SimServer

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
