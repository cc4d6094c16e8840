"""Django set up for the tests: settings once in a process, the models, and their pages in the admin."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import django
import pymysql
from django.apps import AppConfig
from django.conf import settings

pymysql.install_as_MySQLdb()


def server_settings(url: str) -> dict[str, str]:
    """What Django wants to know of a server's database."""
    where = urlsplit(url)
    return {
        "NAME": where.path.lstrip("/"),
        "USER": where.username or "",
        "PASSWORD": where.password or "",
        "HOST": where.hostname or "127.0.0.1",
        "PORT": str(where.port or ""),
    }


class ChatsConfig(AppConfig):
    """The application that the models of this module belong to."""

    name = __name__
    label = "chats"
    path = str(Path(__file__).parent)


settings.configure(
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "set by a fixture"},
        "postgres": {"ENGINE": "django.db.backends.postgresql", "NAME": "set by a fixture"},
        "mariadb": {"ENGINE": "django.db.backends.mysql", "NAME": "set by a fixture"},
    },
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        f"{__name__}.ChatsConfig",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
        }
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    USE_TZ=True,
)
django.setup()

from django.contrib import admin  # noqa: E402 - after the settings
from django.db import models  # noqa: E402
from django.urls import path as route  # noqa: E402

from goaitools_py.integrations.django import AbstractConversation, StateField  # noqa: E402


class Conversation(AbstractConversation):
    """The tests' conversations."""

    class Meta:
        app_label = "chats"


class Player(models.Model):
    """A row of the user's own with a state in it."""

    name = models.CharField(max_length=80)
    state = StateField(null=True)

    class Meta:
        app_label = "chats"


class ConversationAdmin(admin.ModelAdmin):
    """What the documentation recommends."""

    list_display = ("key", "status", "total_tokens", "version", "updated_at")
    readonly_fields = ("key", "blob", "status", "total_tokens", "version", "updated_at")


class PlayerAdmin(admin.ModelAdmin):
    """A page with a form, and the state's size beside it."""

    readonly_fields = ("state",)


admin.site.register(Conversation, ConversationAdmin)
admin.site.register(Player, PlayerAdmin)
urlpatterns = [route("admin/", admin.site.urls)]
