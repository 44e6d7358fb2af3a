import { objectKinds } from '../object-kinds.ts'
import { originLabel } from '../platform-object.ts'
import { apiGroup } from '../object-types.ts'

/** The service account that the controller runs as. */
export interface ControllerAccount {
  readonly namespace: string
  readonly name: string
}

const policyName = `mirrors.${apiGroup}`

/** CEL: `what` has a given label. */
const isMirror = (what: string): string =>
  `has(${what}.metadata.labels) && '${originLabel}' in ${what}.metadata.labels && ${what}.metadata.labels['${originLabel}'] == 'api'`

/** CEL: both sides agree in a field that either may lack. */
const sameField = (path: string): string => `(has(object.${path}) ? has(oldObject.${path}) && object.${path} == oldObject.${path} : !has(oldObject.${path}))`

/**
 * A ValidatingAdmissionPolicy and its binding: objects with the label `taproot.dev/origin: api` are written by the controller only, and nobody else gives or
 * takes that label. Anybody who may delete them does; the controller makes them again. Writes that change nothing pass (migrations of the stored version), and so
 * does what removes finalizers from a mirror that is being deleted.
 *
 * The account stands in the first two variables, each in single quotes and with nothing else: a chart's template or a kustomize replacement sets them.
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
          message: `an object with the label ${originLabel}=api shows a record that the API owns: it is read-only, and only the controller gives or takes the label`,
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
