"""Where a state meets a framework: one module for each, imported by its user and by nothing else here."""

__all__: list[str] = []
