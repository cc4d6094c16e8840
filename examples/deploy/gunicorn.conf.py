"""gunicorn 25 or newer: ``gunicorn -c gunicorn.conf.py app:app``. With an older one take uvicorn alone."""

import os

bind = os.environ.get("APP_BIND", "127.0.0.1:8000")
workers = int(os.environ.get("APP_WORKERS", "2"))
worker_class = "asgi"  # a worker that runs an event loop; sync and gthread do not run ASGI
timeout = 60  # a worker whose event loop stands still for so long is killed
graceful_timeout = 60  # open streams, then ServeLimits.grace_seconds, then the store
keepalive = 75  # longer than nginx keeps an idle connection to it
max_requests = 0  # a worker that restarts in the middle cuts its streams
