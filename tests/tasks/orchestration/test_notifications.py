"""Who is told of a run's end, by a real command and a real webhook."""

import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import ValidationError

from oneclass.tasks.orchestration.notifications import NotifySettings, send_notifications

RUN = {"dataset": "shop", "run_id": "r1", "text": "# shop: nightly-retrain failed\n\nAll of it."}


@pytest.fixture
def webhook():
    """An address, and what was posted to it; it refuses what is posted to /refused."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(500 if self.path == "/refused" else 200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    server.server_close()


def command(code):
    """A command line that runs Python code without double quotes."""
    return f'{sys.executable} -c "{code}"'


def test_a_command_gets_the_summary_and_what_it_is_of(tmp_path):
    code = (
        "import os,sys,json; json.dump([sys.stdin.read(), *[os.environ['ONECLASS_' + n] for n in "
        f"('DATASET', 'RUN_ID', 'STATE')]], open('{tmp_path}/told', 'w'))"
    )
    send_notifications(NotifySettings(command=command(code)), state="failed", **RUN)
    assert json.loads((tmp_path / "told").read_text()) == [RUN["text"], "shop", "r1", "failed"]


def test_a_webhook_gets_both_as_json(webhook):
    address, posted = webhook
    send_notifications(NotifySettings(webhook=address), state="failed", **RUN)
    assert posted == [("application/json", {**RUN, "state": "failed"})]


def test_of_a_completed_run_someone_is_told_only_where_that_is_asked_for(webhook):
    address, posted = webhook
    send_notifications(NotifySettings(webhook=address), state="completed", **RUN)
    assert not posted
    send_notifications(NotifySettings(webhook=address, when="always"), state="completed", **RUN)
    assert len(posted) == 1


def test_what_goes_wrong_with_telling_is_said_and_the_other_way_is_tried(webhook, caplog):
    address, posted = webhook
    caplog.set_level(logging.WARNING)
    failing = command("import sys; sys.exit('no mail here')")
    send_notifications(NotifySettings(command=failing, webhook=f"{address}/refused"), state="failed", **RUN)
    assert len(posted) == 1
    assert "notify.command" in caplog.text and "status 1" in caplog.text and "no mail here" in caplog.text
    assert "notify.webhook" in caplog.text and "500" in caplog.text
    send_notifications(NotifySettings(command="no-such-program --at all"), state="failed", **RUN)
    assert "no-such-program" in caplog.text


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ValidationError, match="webhook"):
        NotifySettings(webhook="file:///etc/passwd")
