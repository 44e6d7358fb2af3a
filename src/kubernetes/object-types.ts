import type { ObjectType } from './kube-api.ts'

/** The API group of the platform's objects. */
export const apiGroup = 'taproot.dev'

/** The version in which the platform's objects are served and stored. */
export const apiVersion = 'v1alpha1'

function ours(kind: string, plural: string, namespaced = true): ObjectType {
  return { group: apiGroup, version: apiVersion, kind, plural, namespaced }
}

/** The object types that the controller reads or writes. */
export const objectTypes = {
  group: ours('PlatformGroup', 'platformgroups'),
  identity: ours('PlatformIdentity', 'platformidentities'),
  role: ours('PlatformRole', 'platformroles'),
  roleBinding: ours('PlatformRoleBinding', 'platformrolebindings'),
  repo: ours('PlatformRepo', 'platformrepos'),
  subscription: ours('PlatformSubscription', 'platformsubscriptions'),
  grant: ours('PlatformNamespaceGrant', 'platformnamespacegrants', false),
  namespace: { group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces', namespaced: false },
  secret: { group: '', version: 'v1', kind: 'Secret', plural: 'secrets', namespaced: true },
  serviceAccount: { group: '', version: 'v1', kind: 'ServiceAccount', plural: 'serviceaccounts', namespaced: true },
  lease: { group: 'coordination.k8s.io', version: 'v1', kind: 'Lease', plural: 'leases', namespaced: true },
  event: { group: 'events.k8s.io', version: 'v1', kind: 'Event', plural: 'events', namespaced: true },
  crd: { group: 'apiextensions.k8s.io', version: 'v1', kind: 'CustomResourceDefinition', plural: 'customresourcedefinitions', namespaced: false },
} as const satisfies Record<string, ObjectType>
