# Receives events of one group: pip install -r requirements.txt; ISSUER=https://platform.example.com GROUP=<uid> python receiver.py
import hashlib
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import jwt
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event
from cloudevents.core.exceptions import BaseCloudEventException

# The base URL of Taproot, the group of the subscription, and the port to listen on. Sinks are https: let a proxy terminate TLS.
issuer, group, port = os.environ["ISSUER"], os.environ["GROUP"], int(os.environ.get("PORT", "8080"))
max_bytes = 4 * 1024 * 1024

with urlopen(issuer.rstrip("/") + "/.well-known/openid-configuration", timeout=10) as response:
    discovery = json.load(response)
if discovery["issuer"] != issuer:
    sys.exit(f"the issuer calls itself {discovery['issuer']}")
keys = jwt.PyJWKClient(discovery["jwks_uri"], timeout=5)


def handle(event):
    """What to do with an event. An event may come twice: remember the ids that were handled."""
    shown = {"id": event.get_id(), "type": event.get_type(), "subject": event.get_subject(), "group": event.get_extension("group")}
    print(json.dumps({**shown, "data": event.get_data()}), flush=True)


def verify(token, body):
    """Raises jwt.PyJWTError unless Taproot sent these bytes, to this group, within the last hour."""
    key = keys.get_signing_key_from_jwt(token)
    expected = {"algorithms": ["ES256"], "issuer": issuer, "audience": "customer", "subject": f"webhook:{group}"}
    claims = jwt.decode(token, key, options={"require": ["exp"]}, **expected)
    if claims.get("webhook", {}).get("digest") != "sha256:" + hashlib.sha256(body).hexdigest():
        raise jwt.InvalidTokenError("the token is for another body")


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        length = int(self.headers.get("Content-Length", max_bytes + 1))
        if length > max_bytes:
            self.close_connection = True
            return self.answer(413, "the body is too large\n")
        body = self.rfile.read(length)
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        # The SDK makes up an id where there is none.
        if "Ce-Id" not in self.headers:
            return self.answer(400, "no CloudEvent: it has no id\n")
        try:
            event = from_binary_event(HTTPMessage(dict(self.headers.items()), body))
            if scheme.lower() != "bearer":
                return self.answer(401, "no token\n")
            verify(token, body)
            handle(event)
            self.answer(200)
        except BaseCloudEventException as error:
            self.answer(400, f"no CloudEvent: {error}\n")
        except jwt.PyJWKClientConnectionError as error:
            # Without the keys no token can be judged. Taproot sends the event again after a 500.
            self.answer(500, f"{error}\n")
        except jwt.PyJWTError as error:
            self.answer(403, f"{error}\n")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("", port), Receiver)
print(f"listening on port {server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
