#!/bin/sh
# uvicorn alone. Open streams have 30 seconds to end, then ServeLimits.grace_seconds (20) begin.
exec uvicorn app:app --host "${APP_HOST:-127.0.0.1}" --port "${APP_PORT:-8000}" \
    --workers "${APP_WORKERS:-2}" \
    --timeout-graceful-shutdown "${APP_STREAM_SECONDS:-30}" \
    --timeout-keep-alive 75 \
    --no-server-header --no-access-log
