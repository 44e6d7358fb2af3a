# The walkthrough of docs/getting-started.md with a client from openapi-python-client. It prints what it sees.
import os

from taproot_client import AuthenticatedClient
from taproot_client.api.access import list_access
from taproot_client.api.auth import validate_token
from taproot_client.api.groups import create_group, create_root_group, delete_group, get_group, list_groups, update_group
from taproot_client.api.identities import create_identity, delete_identity, list_identities
from taproot_client.api.repos import list_repos
from taproot_client.api.role_bindings import batch_create_role_bindings, create_role_binding
from taproot_client.api.roles import create_role, list_roles
from taproot_client.api.security_token import exchange_token
from taproot_client.api.tag_history import list_tag_history, restore_tag
from taproot_client.api.tags import list_tags
from taproot_client.models import (
    BatchCreateRoleBindingsBody,
    CommonV2CapabilityInput,
    Error,
    IamV2CreateRoleBindingRequestInput,
    IamV2GroupInput,
    IamV2GroupPatch,
    IamV2IdentityClaimMatchInput,
    IamV2IdentityInput,
    IamV2RoleBindingInput,
    IamV2RoleInput,
    RestoreTagBody,
)

API, ROOT = os.environ["API"], os.environ["ROOT"]


def client_for(token):
    return AuthenticatedClient(API, token, raise_on_unexpected_status=True)


def answer(parsed):
    """Returns what an operation answered. Raises the error that it answered instead."""
    if isinstance(parsed, Error):
        raise RuntimeError(parsed.message)
    return parsed


def refusal(response):
    """Returns the status and code of an operation that is refused, and the reason of its error."""
    error = response.parsed
    return f"{response.status_code.value} {error.code} {error.details[0].reason}"


def names(records):
    return " ".join(record.name for record in records)


owner = client_for(os.environ["TOKEN"])

groups = answer(list_groups.sync(client=owner, name=ROOT))
print(f"groups: {groups.total_count}")
demo = groups.groups[0].uid

# A group and an identity.
created = answer(create_group.sync(demo, client=owner, body=IamV2GroupInput(name="web", description="The web team")))
print(f"created: {created.name}, {created.description}")
web = created.uid
issuer = f"{API}/dev/issuer"


def new_identity(name, **claims):
    claim_match = IamV2IdentityClaimMatchInput(issuer=issuer, **claims)
    return answer(create_identity.sync(web, client=owner, body=IamV2IdentityInput(name=name, claim_match=claim_match))).uid


ci = new_identity("ci", subject="ci")
viewer = answer(list_roles.sync(client=owner, name="viewer")).roles[0].uid
binding = answer(create_role_binding.sync(web, client=owner, body=IamV2RoleBindingInput(identity_uid=ci, role_uid=viewer)))
print(f"bound: {binding.identity.name} {binding.group.name} {binding.role.name}")

# Who has access.
access = answer(list_access.sync(client=owner, resource=web, capability="CAP_IAM_GROUPS_LIST"))
print(f"access: {access.total_count}")

# Sign in as that identity.
job = client_for(answer(exchange_token.sync(client=client_for(os.environ["CI_TOKEN"]), identity=ci)).token)
print(f"seen: {names(answer(list_groups.sync(client=job)).groups)}")
caller = answer(validate_token.sync(client=job))
print(f"caller: {str(caller.subject == ci).lower()} {' '.join(held.role.name for held in caller.capabilities)}")
print(f"denied: {refusal(delete_group.sync_detailed(web, client=job))}")
print(f"hidden: {refusal(get_group.sync_detailed(demo, client=job))}")

# Change a record.
patch = IamV2GroupPatch(name="ignored", description="Everything on the web")
changed = answer(update_group.sync(web, client=owner, body=patch, update_mask="description"))
print(f"changed: {changed.name}, {changed.description}")
unchanged = {"client": owner, "if_match": f'"{changed.etag}"'}
print(f"first: {answer(update_group.sync(web, body=IamV2GroupPatch(description='First'), **unchanged)).description}")
print(f"second: {refusal(update_group.sync_detailed(web, body=IamV2GroupPatch(description='Second'), **unchanged))}")

# Roles, and many bindings at once.
capabilities = [CommonV2CapabilityInput.CAP_IAM_GROUPS_LIST, CommonV2CapabilityInput.CAP_REPO_LIST, CommonV2CapabilityInput.CAP_TAG_CREATE]
role = answer(create_role.sync(demo, client=owner, body=IamV2RoleInput(name="deployer", capabilities=capabilities)))
print(f"role: {' '.join(role.capabilities)}")
release = new_identity("release", subject_pattern="release-.*")
requests = [IamV2CreateRoleBindingRequestInput(role_binding=IamV2RoleBindingInput(identity_uid=uid)) for uid in (ci, release)]
batch = BatchCreateRoleBindingsBody(parent=web, role_uid=role.uid, requests=requests)
bindings = answer(batch_create_role_bindings.sync(client=owner, body=batch))
print(f"bindings: {names(binding.identity for binding in bindings.role_bindings)}")

# Lists.
order = {"client": owner, "uidp_descendants_of": web, "order_by": "created_at desc", "page_size": 1}
page = answer(list_identities.sync(**order))
following = answer(list_identities.sync(**order, page_token=page.next_page_token))
print(f"pages: {names(page.identities)} {names(following.identities)} of {page.total_count}")

# Delete.
print(f"full: {refusal(delete_group.sync_detailed(web, client=owner))}")
for uid in (ci, release):
    delete_identity.sync_detailed(uid, client=owner)
print(f"deleted: {delete_group.sync_detailed(web, client=owner).status_code.value}")
print(f"signed out: {refusal(list_groups.sync_detailed(client=job))}")

# The history of a tag.
repo = answer(list_repos.sync(client=owner, uidp_descendants_of=demo, name="hello")).repos[0].uid
print(f"tags: {names(answer(list_tags.sync(client=owner, uidp_children_of=repo)).tags)}")
history = answer(list_tag_history.sync(repo, client=owner, tag="latest")).history
print(f"history: {len(history)}")
restored = answer(restore_tag.sync(repo, client=owner, body=RestoreTagBody(tag="latest", digest=history[0].digest)))
print(f"restored: {restored.name} {str(restored.digest == history[0].digest).lower()}")

# A root group, which an operator creates.
operator = client_for(answer(exchange_token.sync(client=client_for(os.environ["ANN_TOKEN"]))).token)
acme = answer(create_root_group.sync(client=operator, body=IamV2GroupInput(name=f"{ROOT}-acme")))
print(f"organisation: {acme.name} {acme.status}")
