"""States in Django: a field for your own model, and an abstract model if you have no model.

Owns: the field, the abstract model with its plain columns for the admin. Must never know: a chat, a view,
or how a turn runs. The stores over the model stand in `goaitools_py.stores.django` and are named here too.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..base.advice import missing_extra_error

try:
    from django.db import models, router, transaction
    from django.utils import timezone
except ModuleNotFoundError as error:
    raise missing_extra_error(error, "goaitools_py.integrations.django", "django") from None

from ..history.info import StateInfo, inspect_state
from ..state.blob_header import MAGIC
from ..stores.common import conflict, new_version
from ..stores.django import AsyncDjangoStore, DjangoStore
from ..stores.layout import MAX_KEY_BYTES, MAX_STATUS_CHARACTERS, MAX_TITLE_CHARACTERS
from ..types.errors import StateError
from ._column import column_bytes

__all__ = ["AbstractConversation", "AsyncDjangoStore", "DjangoStore", "StateField"]


class StateField(models.BinaryField):
    """A state in a model: bytea on PostgreSQL, LONGBLOB on MySQL and MariaDB, BLOB on SQLite.

    Takes `bytes`, `bytearray`, `memoryview` or None, and gives `bytes` or None. No form edits it, and a
    read-only field of the admin shows its size. Text is refused with an error that names the likely
    damage. Fixtures hold base64, as for Django's own `BinaryField`.
    """

    description = "State of a conversation"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.setdefault("editable", False):
            raise TypeError("a StateField cannot be editable: a state is not text; leave editable= out")
        super().__init__(*args, **kwargs)

    def get_prep_value(self, value: Any) -> Any:
        """Convert a value for the driver."""
        return column_bytes(super().get_prep_value(value))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> bytes | None:
        """Convert a value from the driver."""
        return column_bytes(value)

    def to_python(self, value: Any) -> bytes | None:
        """Read a fixture's base64, or check a value."""
        if isinstance(value, str):
            try:
                decoded = b64decode(value, validate=True)
            except ValueError:
                decoded = b""
            if decoded.startswith(MAGIC):
                return column_bytes(decoded)
        return column_bytes(value)


_COLLATIONS: Final = {"postgresql": "C", "sqlite": "BINARY"}


class KeyField(models.CharField):
    """Text that is compared by code points, also on databases that ignore case and accents by default."""

    def db_parameters(self, connection: Any) -> Any:
        """The column with the engine's collation by code points."""
        given = super().db_parameters(connection)
        if connection.vendor == "mysql":
            binary = "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
            return {**given, "collation": binary}
        return {**given, "collation": _COLLATIONS.get(connection.vendor) or given["collation"]}


class AbstractConversation(models.Model):
    """A row for each conversation, with plain columns for lists and for the admin beside the state.

    A kept conversation fills the plain columns. Without one, `status`, `turns`, `total_tokens` and
    `cost_nano_dollars` (billionths of a US dollar) come from `inspect_state`, and are empty if the state
    cannot be read. `stop_requested` belongs to the row: a save leaves it as it is. `DjangoStore`
    and the model's own `save` compare `version`: of two savers the second gets a `StateConflictError`.
    `QuerySet.update` and `bulk_update` do not compare.
    """

    key = KeyField(max_length=MAX_KEY_BYTES, primary_key=True, editable=False)
    blob = StateField()
    version = models.PositiveBigIntegerField(editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    title = models.CharField(max_length=MAX_TITLE_CHARACTERS, blank=True, default="", editable=False)
    status = models.CharField(max_length=MAX_STATUS_CHARACTERS, blank=True, default="", editable=False)
    turns = models.PositiveBigIntegerField(null=True, editable=False)
    total_tokens = models.PositiveBigIntegerField(null=True, editable=False)
    cost_nano_dollars = models.PositiveBigIntegerField(null=True, editable=False)
    stop_requested = models.BooleanField(default=False, editable=False)

    described: Mapping[str, Any] = MappingProxyType({})
    """Values for the plain columns of the next save, where the state itself is not to be asked."""

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.key)

    @classmethod
    def inspect(cls, key: str, blob: bytes) -> StateInfo:
        """Read the values of the plain columns. Override it to give a codec and a binding."""
        return inspect_state(blob)

    @classmethod
    def columns(cls, key: str, blob: bytes) -> dict[str, Any]:
        """The plain columns of a state. Override it, with `super()`, to fill columns of your own."""
        empty = {"title": "", "status": "", "turns": None, "total_tokens": None, "cost_nano_dollars": None}
        try:
            info = cls.inspect(key, blob)
        except StateError:
            return empty
        if info.is_sealed:  # no key was given, so nothing is known
            return empty
        cost = info.total_cost_usd
        return {
            **empty,
            "status": info.status,
            "turns": info.turns_processed,
            "total_tokens": info.total_usage.total_tokens,
            "cost_nano_dollars": None if cost is None else int(cost.scaleb(9)),
        }

    def save(self, **kwargs: Any) -> None:
        """Save the row and fill its plain columns anew, if the stored version is still the loaded one.

        Raises:
            StateConflictError: Another version is stored; nothing is saved.
        """
        fields = kwargs.get("update_fields")
        if fields is not None and "blob" not in fields:
            super().save(**kwargs)
            return
        own = {**self.columns(self.key, self.blob), **self.described, "updated_at": timezone.now()}
        self.described = MappingProxyType({})
        for name, value in own.items():
            setattr(self, name, value)
        if fields is not None:
            kwargs["update_fields"] = {*fields, *own, "version"}
        before = self.version
        self.version = new_version(None if self._state.adding else before)
        using = kwargs.setdefault("using", router.db_for_write(type(self), instance=self))
        try:
            with transaction.atomic(using=using):
                if not self._state.adding:
                    self._claim(using, before)
                super().save(**kwargs)
        except BaseException:
            self.version = before
            raise

    def _claim(self, using: str, before: int) -> None:
        """Compare the version, and hold the row until the transaction ends."""
        rows = type(self)._base_manager.using(using)
        if rows.filter(pk=self.pk, version=before).update(version=self.version) != 1:
            raise conflict(before)
