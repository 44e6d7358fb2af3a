import { expect, vi } from 'vitest'
import type { Kube } from '../../../support/parts/kubernetes/kube.ts'
import { objectsOf, renderText, type Rendered } from '../helm.ts'

/** The release and namespace of the rendered chart. */
export const place = { name: 'taproot', namespace: 'default' } as const

/** Returns the roles that the chart gives the controller's service account. */
export async function controllerRoles(): Promise<readonly Rendered[]> {
  const objects = objectsOf(await renderText({ kubernetes: { pullSecrets: { enabled: true } } }, place))
  return objects.filter(
    ({ kind, metadata: { name } }) =>
      ['ServiceAccount', 'ClusterRole', 'ClusterRoleBinding', 'Role', 'RoleBinding'].includes(kind) && /-(controller|mirror)$/.test(name),
  )
}

/** One right of each bound role, as arguments of `kubectl auth can-i`. */
const oneOfEach = [
  ['patch', 'platformgroups.taproot.dev', '--all-namespaces'],
  ['update', 'leases.coordination.k8s.io/taproot-controller', `--namespace=${place.namespace}`],
  ['create', 'platformgroups.taproot.dev', `--namespace=${place.namespace}`],
] as const

/** Resolves with yes or no for each right, as the API server currently decides. */
function known(kube: Kube): Promise<readonly string[]> {
  const account = `--as=system:serviceaccount:${place.namespace}:taproot-controller`
  // The command fails if the answer is no.
  return Promise.all(
    oneOfEach.map((right) =>
      kube.kubectl(['auth', 'can-i', ...right, account]).then(
        (said) => said.trim(),
        () => 'no',
      ),
    ),
  )
}

/** Gives the roles to the controller's service account. Resolves with a token for it. */
export async function grantRights({ kube }: { readonly kube: Kube }): Promise<string> {
  await kube.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: await controllerRoles() }))
  await vi.waitFor(() => expect(known(kube)).resolves.toEqual(oneOfEach.map(() => 'yes')), { timeout: 120_000, interval: 50 })
  return (await kube.kubectl(['-n', place.namespace, 'create', 'token', 'taproot-controller'])).trim()
}
