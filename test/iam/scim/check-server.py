"""Runs an independent checker (PyPI's scim2-tester) against the SCIM server at SCIM_URL and prints its results as JSON."""

import json
import os
import sys

from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import check_server

http = Client(
    base_url=os.environ["SCIM_URL"],
    headers={"Authorization": f"Bearer {os.environ['SCIM_TOKEN']}"},
    timeout=60,
    trust_env=False,
)
results = [
    {"status": result.status.name, "title": result.title, "reason": result.reason or ""}
    for result in check_server(SyncSCIMClient(http))
]
json.dump(results, sys.stdout)
