/** One right of the controller: a verb on a resource, and its purpose. */
export interface ControllerRight {
  /** `cluster`: in all namespaces; `release`: in the release's own; `mirrors`: in that of the mirrors. */
  readonly where: 'cluster' | 'release' | 'mirrors'
  readonly group: string
  readonly resource: string
  readonly verbs: readonly string[]
  /** The names of the objects; all objects if absent. */
  readonly names?: readonly string[]
  /** What fails without the right. */
  readonly needs: string
  /** Only with `kubernetes.pullSecrets.enabled`. */
  readonly pullSecrets?: true
  /** Used so rarely that a test would have to wait for it. */
  readonly seldom?: true
}

const kinds = ['platformgroups', 'platformidentities', 'platformrepos', 'platformrolebindings', 'platformroles', 'platformsubscriptions']
const taproot = 'taproot.dev'

/** Every right that the chart gives the controller. A rule without a row here fails a test. */
export const controllerRights: readonly ControllerRight[] = [
  ...kinds.flatMap((resource): ControllerRight[] => [
    { where: 'cluster', group: taproot, resource, verbs: ['list', 'watch'], needs: 'objects are seen when they are applied' },
    { where: 'cluster', group: taproot, resource, verbs: ['patch'], needs: 'an object gets its finalizer and the annotation with the uid' },
    { where: 'cluster', group: taproot, resource: `${resource}/status`, verbs: ['patch'], needs: 'an object says how it is' },
    {
      where: 'cluster',
      group: 'apiextensions.k8s.io',
      resource: 'customresourcedefinitions',
      verbs: ['get'],
      names: [`${resource}.taproot.dev`],
      needs: 'an object that goes with its definition does not take its record along',
    },
  ]),
  { where: 'cluster', group: taproot, resource: 'platformnamespacegrants', verbs: ['list', 'watch'], needs: 'what a namespace may do is known' },
  { where: 'cluster', group: taproot, resource: 'platformnamespacegrants/status', verbs: ['patch'], needs: 'a grant says how it is' },
  { where: 'cluster', group: '', resource: 'namespaces', verbs: ['list', 'watch'], needs: 'grants select namespaces by their labels' },
  { where: 'cluster', group: '', resource: 'namespaces', verbs: ['get'], needs: 'a namespace that is being deleted is known as one; the cluster has an id' },
  { where: 'cluster', group: 'events.k8s.io', resource: 'events', verbs: ['create'], needs: 'kubectl describe says what happened' },
  { where: 'cluster', group: 'events.k8s.io', resource: 'events', verbs: ['patch'], needs: 'what happens again is counted, once a minute', seldom: true },
  {
    where: 'cluster',
    group: '',
    resource: 'serviceaccounts',
    verbs: ['list', 'watch'],
    needs: 'service accounts ask for pull secrets',
    pullSecrets: true,
  },
  {
    where: 'cluster',
    group: '',
    resource: 'secrets',
    verbs: ['get', 'create', 'patch'],
    needs: 'pull secrets and shared secrets of subscriptions are made and renewed',
    pullSecrets: true,
  },
  {
    where: 'cluster',
    group: '',
    resource: 'secrets',
    verbs: ['delete'],
    needs: 'a Secret that its subscription no longer names is removed',
    pullSecrets: true,
  },
  { where: 'release', group: 'coordination.k8s.io', resource: 'leases', verbs: ['create'], needs: 'the first leader makes the Lease' },
  {
    where: 'release',
    group: 'coordination.k8s.io',
    resource: 'leases',
    verbs: ['get', 'update'],
    names: ['taproot-controller'],
    needs: 'one of several leads',
  },
  ...['platformgroups', 'platformrolebindings', 'platformsubscriptions'].flatMap((resource): ControllerRight[] => [
    { where: 'mirrors', group: taproot, resource, verbs: ['create'], needs: 'what the API owns is shown' },
    { where: 'mirrors', group: taproot, resource, verbs: ['update'], needs: 'a mirror follows its record' },
    { where: 'mirrors', group: taproot, resource, verbs: ['delete'], needs: 'a mirror goes with its record' },
  ]),
]
