import type { Kube } from '../parts/kube.ts'
import { objectsOf, renderText, type Rendered } from './helm.ts'

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

/** Gives it to the controller's service account. Resolves with a token of it. */
export async function giveRights({ kube }: { readonly kube: Kube }): Promise<string> {
  await kube.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: await controllerRoles() }))
  return (await kube.kubectl(['-n', place.namespace, 'create', 'token', 'taproot-controller'])).trim()
}
