import { objectKinds } from '../object-kinds.ts'
import { originLabel } from '../platform-object.ts'
import { apiGroup } from '../object-types.ts'

/** The service account that the controller runs as. */
export interface ControllerAccount {
  readonly namespace: string
  readonly name: string
}

const policyName = `mirrors.${apiGroup}`

/** Returns CEL that is true if `what` has the mirror label. */
const isMirror = (what: string): string =>
  `has(${what}.metadata.labels) && '${originLabel}' in ${what}.metadata.labels && ${what}.metadata.labels['${originLabel}'] == 'api'`

/** Returns CEL that is true if an optional field is equal in both objects, or missing in both. */
const sameField = (path: string): string => `(has(object.${path}) ? has(oldObject.${path}) && object.${path} == oldObject.${path} : !has(oldObject.${path}))`

/**
 * Returns a ValidatingAdmissionPolicy and its binding. Only the controller may write objects with the label `taproot.dev/origin: api`, and
 * only it may set or remove that label. Anyone with the right to delete such objects may do so; the controller recreates them. The policy
 * admits writes without changes (migrations of the stored version). It also admits the removal of finalizers from a mirror that is being
 * deleted.
 *
 * The first two variables hold the namespace and name of the account, each in single quotes and nothing else. A chart template or a
 * kustomize replacement sets them.
 */
export function mirrorPolicy(account: ControllerAccount): readonly Readonly<Record<string, unknown>>[] {
  const plurals = Object.values(objectKinds).map(({ type }) => type.plural)
  const rule = {
    apiGroups: [apiGroup],
    apiVersions: ['*'],
    operations: ['CREATE', 'UPDATE'],
    resources: plurals.flatMap((plural) => [plural, `${plural}/status`]),
  }
  const policy = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name: policyName },
    spec: {
      failurePolicy: 'Fail',
      matchConstraints: { resourceRules: [rule] },
      variables: [
        { name: 'controllerNamespace', expression: `'${account.namespace}'` },
        { name: 'controllerName', expression: `'${account.name}'` },
        { name: 'controller', expression: "'system:serviceaccount:' + variables.controllerNamespace + ':' + variables.controllerName" },
        { name: 'becomesMirror', expression: isMirror('object') },
        { name: 'wasMirror', expression: `oldObject != null && ${isMirror('oldObject')}` },
        { name: 'isUnchanged', expression: 'oldObject != null && object == oldObject' },
        {
          name: 'isGoing',
          expression: `variables.wasMirror && has(oldObject.metadata.deletionTimestamp) && ${['metadata.labels', 'spec', 'status'].map(sameField).join(' && ')}`,
        },
      ],
      validations: [
        {
          expression:
            'request.userInfo.username == variables.controller || !(variables.becomesMirror || variables.wasMirror) || variables.isUnchanged || variables.isGoing',
          message: `an object with the label ${originLabel}=api shows a record of the API: it is read-only, and only the controller may set or remove the label`,
          reason: 'Forbidden',
        },
      ],
    },
  }
  const binding = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name: policyName },
    spec: { policyName, validationActions: ['Deny'] },
  }
  return [policy, binding]
}
