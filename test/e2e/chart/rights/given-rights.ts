import { expect, vi } from 'vitest'
import type { Kube } from '../../../support/parts/kubernetes/kube.ts'
import { objectsOf, renderText, type Rendered } from '../helm.ts'

/** Where the rendered installation is. */
export const place = { name: 'taproot', namespace: 'default' } as const

/** What the chart gives the controller's service account. */
export async function controllerRoles(): Promise<readonly Rendered[]> {
  const objects = objectsOf(await renderText({ kubernetes: { pullSecrets: { enabled: true } } }, place))
  return objects.filter(
    ({ kind, metadata: { name } }) =>
      ['ServiceAccount', 'ClusterRole', 'ClusterRoleBinding', 'Role', 'RoleBinding'].includes(kind) && /-(controller|mirror)$/.test(name),
  )
}

/** One right of each role that is bound, as `kubectl auth can-i` takes it. */
const oneOfEach = [
  ['patch', 'platformgroups.taproot.dev', '--all-namespaces'],
  ['update', 'leases.coordination.k8s.io/taproot-controller', `--namespace=${place.namespace}`],
  ['create', 'platformgroups.taproot.dev', `--namespace=${place.namespace}`],
] as const

/** Resolves with yes or no for each of them, as the API server knows the roles by now. */
function known(kube: Kube): Promise<readonly string[]> {
  const account = `--as=system:serviceaccount:${place.namespace}:taproot-controller`
  // It fails where the answer is no.
  return Promise.all(
    oneOfEach.map((right) =>
      kube.kubectl(['auth', 'can-i', ...right, account]).then(
        (said) => said.trim(),
        () => 'no',
      ),
    ),
  )
}

/** Gives it to the controller's service account. Resolves with a token of it. */
export async function grantRights({ kube }: { readonly kube: Kube }): Promise<string> {
  await kube.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: await controllerRoles() }))
  await vi.waitFor(() => expect(known(kube)).resolves.toEqual(oneOfEach.map(() => 'yes')), { timeout: 30_000, interval: 50 })
  return (await kube.kubectl(['-n', place.namespace, 'create', 'token', 'taproot-controller'])).trim()
}
